"""What do the tests of the relay put at its two ends? An answer by script, and a caller who keeps all."""

import asyncio
import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.model import Headers, Job, Trip
from gateway.relay import Answer, Relay
from gateway.relay.ends import Sink
from gateway.tally import Tally
from tests.gateway.test_model import Clock, job, trip

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")

PLAIN = b'{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
TOKEN = b'data: {"choices":[{"text":"hi"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"

Read = bytes | Exception | Callable[[], bytes]


class Way(Enum):
    """How a stream goes from its worker to its caller."""

    READS = "reads"  # by a task that reads and sends
    PIPE = "pipe"  # what comes is written as it comes
    CHUNKS = "chunks"  # the same in the frames it came in


class ScriptedAnswer:
    """Gives out its reads one after the other, then the end; each is a chunk of its own if `framed`."""

    def __init__(
        self,
        reads: Sequence[Read],
        status: int = 200,
        headers: Headers = (JSON,),
        length: int | None = None,
        framed: bool = False,
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.length = length
        self.reads = list(reads)
        self.framed = framed
        self.endless = False
        self.is_there = False  # what is to come has come
        self.holds: list[bool] = []
        self._flows = asyncio.Event()
        self._flows.set()

    async def read(self) -> bytes:
        if not self.reads and self.endless:
            await asyncio.Event().wait()
        return self._next()

    def take(self) -> bytes | None:
        return self._next() if self.is_there else None

    def _next(self) -> bytes:
        match self.reads.pop(0) if self.reads else b"":
            case Exception() as error:
                raise error
            case bytes() as data:
                return data
            case make:
                return make()

    async def pour(self, sink: Sink) -> None:
        while True:
            await self._flows.wait()
            data = await self.read()
            if not data or not sink(data, framed(data) if self.framed else None):
                return

    def hold(self, is_held: bool) -> None:
        self.holds.append(is_held)
        if is_held:
            self._flows.clear()
        else:
            self._flows.set()


class Caller:
    """Keeps what goes to it, each write apart. It has a pipe, unless it is said not to."""

    def __init__(self, piped: bool = False) -> None:
        self.started = False
        self.status = 0
        self.headers: Headers = ()
        self.length: int | None = None
        self.is_reply = False
        self.writes: list[bytes] = []
        self.last: bytes | None = None  # what the end came with
        self.piped: list[bytes] = []  # of the writes, those through the pipe without frames
        self.chunks: list[bytes] = []  # and those in frames, as they came
        self.has_pipe = piped
        self.on_full: Callable[[bool], None] = lambda is_full: None
        self.on_write: Callable[[], object] = lambda: None

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        await self.start(status, headers, len(body))
        await self.finish(body)
        self.is_reply = True

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        assert not self.status
        self.status, self.headers, self.length = status, list(headers), length

    async def send(self, data: bytes) -> None:
        self._keep(data)

    async def finish(self, data: bytes) -> None:
        assert self.status
        assert self.last is None
        self.last = data
        self.on_write()

    def pipe(self, on_full: Callable[[bool], None]) -> "Caller | None":
        assert self.status
        if not self.has_pipe:
            return None
        self.on_full = on_full
        return self

    def write(self, data: bytes) -> None:
        self.piped.append(data)
        self._keep(data)

    def write_chunks(self, chunks: bytes) -> None:
        self.chunks.append(chunks)
        self._keep(unframed(chunks))

    def _keep(self, data: bytes) -> None:
        assert data  # nothing is written for nothing
        assert self.status
        assert self.last is None
        self.writes.append(data)
        self.on_write()

    @property
    def body(self) -> bytes:
        return b"".join(self.writes) + (self.last or b"")


class Watching:
    """Keeps what it is told of the worker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first_tokens: list[float] = []  # when each came
        self.prompts_done: list[float] = []
        self.told: list[tuple[float, float, int]] = []

    def first_token(self) -> None:
        self.first_tokens.append(self.clock())

    def prompt_done(self) -> None:
        self.prompts_done.append(self.clock())

    def tokens(self, since_s: float, now_s: float, count: int) -> None:
        self.told.append((since_s, now_s, count))

    @property
    def heard_nothing(self) -> bool:
        return not (self.first_tokens or self.prompts_done or self.told)


class Run:
    """One answer relayed."""

    def __init__(
        self, answer: Answer, clock: Clock | None = None, *, piped: bool = False, **fields: Any
    ) -> None:
        self.answer = answer
        self.clock = clock or Clock()
        self.caller = Caller(piped)
        self.job: Job = job(**fields)
        self.trip: Trip = trip(gaps=Tally((0.1, 1.0)) if self.job.stream else None)
        self.watching = Watching(self.clock)
        self.outcomes: list[str] = []  # of the trip, at each write
        self.caller.on_write = lambda: self.outcomes.append(self.trip.outcome)

    async def run(self) -> "Run":
        await Relay(self.clock).run(self.answer, self.job, self.caller, self.trip, self.watching)
        return self

    async def fails(self, kind: type[GatewayError]) -> GatewayError:
        with pytest.raises(kind) as caught:
            await self.run()
        return caught.value


class Streaming(Run):
    """A stream by script relayed."""

    def __init__(self, way: Way, *reads: Read, clock: Clock | None = None, **fields: Any) -> None:
        self.script = ScriptedAnswer(reads, headers=(SSE,), framed=way is Way.CHUNKS)
        super().__init__(self.script, clock, piped=way is not Way.READS, stream=True, **fields)


StreamOf = Callable[..., Streaming]  # of reads, and of what Streaming takes by name


def after(clock: Clock, seconds: float, data: bytes) -> Callable[[], bytes]:
    """A read that takes so long."""

    def read() -> bytes:
        clock.now += seconds
        return data

    return read


def error_event(code: object, message: str = "no such thing") -> bytes:
    return b"data: " + json.dumps({"error": {"message": message, "code": code}}).encode() + b"\n\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def unframed(chunks: bytes) -> bytes:
    """What is in whole chunks."""
    data = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        end = int(size, 16)
        assert rest[end : end + 2] == b"\r\n"
        data += rest[:end]
        chunks = rest[end + 2 :]
    return data

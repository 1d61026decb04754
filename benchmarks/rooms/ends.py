"""What does a room have at its ends while it is measured alone? As little as can be."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.model import Fields, Headers, Quotas, Usage
from gateway.relay import Pipe

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
Sink = Callable[[bytes, bytes | None], bool]


def ignore(*_: object) -> None:
    """Nobody is told."""


class Place:
    """At no worker."""

    member = None

    def close(self) -> None:
        """It was nobody's."""

    def prefill_s(self) -> float:
        return 0.05  # behind others, as under load: long enough for a timer

    def prompt_done(self) -> None: ...


class Lease:
    """Of everything that a request holds while it passes."""

    def __init__(self, quotas: Quotas | None) -> None:
        self.quotas = quotas
        self.place = Place()

    def charge(self, usage: Usage) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainAnswer:
    """A worker's answer that has come as a whole."""

    status = 200

    def __init__(self, body: bytes) -> None:
        self.headers = [JSON]
        self.length: int | None = len(body)
        self._body = body

    async def read(self) -> bytes:
        return self._body

    def take(self) -> bytes | None:
        return self._body

    async def pour(self, sink: Sink) -> None:
        """Not of a plain answer."""

    def hold(self, is_held: bool) -> None:
        """There is nothing to hold."""


class StreamAnswer:
    """A worker's stream, of an opening and an ending; the same each time it is run."""

    status = 200
    length: int | None = None

    def __init__(self, opening: bytes, ending: bytes) -> None:
        self.headers = [EVENTS]
        self._opening = opening
        self._ending = ending

    async def read(self) -> bytes:
        return self._opening

    def take(self) -> bytes | None:
        return b""  # the end has come with the last event

    async def pour(self, sink: Sink) -> None:
        sink(self._ending, None)

    def hold(self, is_held: bool) -> None:
        """There is nothing to hold."""


class Taker:
    """An outlet from which everything is taken and at which nobody looks."""

    started = False

    async def reply(self, status: int, headers: Headers, body: bytes) -> None: ...
    async def start(self, status: int, headers: Headers, length: int | None) -> None: ...
    async def send(self, data: bytes) -> None: ...
    async def finish(self, data: bytes) -> None: ...

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        return self

    def write(self, data: bytes) -> None: ...
    def write_chunks(self, chunks: bytes) -> None: ...


class Unmoved:
    """Who is told how fast the worker is, and learns nothing."""

    def first_token(self) -> None: ...
    def prompt_done(self) -> None: ...
    def tokens(self, since_s: float, now_s: float, count: int) -> None: ...


class Visitor:
    """A caller's line with a request on it. The caller is told everything and does not leave."""

    is_behind = False

    def __init__(self, fields: Fields, body: bytes, task: asyncio.Task[None]) -> None:
        self.fields = fields
        self.task = task
        self._body = body

    async def body(self, most_bytes: int) -> bytes | None:
        return self._body

    def watch(self, on_lost: Callable[[], None]) -> None: ...
    def unwatch(self) -> None: ...
    async def reply(self, status: int, head: bytes, body: bytes) -> None: ...
    async def start(self, status: int, head: bytes, length: int | None) -> None: ...
    async def send(self, data: bytes) -> None: ...
    async def finish(self, data: bytes) -> None: ...

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        return None

    def abort(self) -> None: ...

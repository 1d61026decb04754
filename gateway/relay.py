"""The worker's bytes → the caller, as they come, with an eye on what they say."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

import msgspec

from gateway import sse
from gateway.errors import Overloaded, WorkerError, WorkerFailed, WorkerRefusedCredentials
from gateway.model import Headers, Job, Trip

log = logging.getLogger(__name__)

MAX_READ_BYTES = 16 * 1024 * 1024  # of a plain answer, kept to find its usage; beyond, usage stays unknown
MAX_DETAIL_BYTES = 2000  # of a worker's own failure, for the log
TOLD_EVERY = 4  # tokens; of single ones several may come in one read, which says nothing of their pace
LINGER_S = 1.0  # for the end of a body whose last event has gone out, so that the connection can be reused

# What stays behind: the connection's own, and what would tell about the worker.
PRIVATE_HEADERS = frozenset(
    (b"server", b"date", b"x-request-id", b"location", b"set-cookie", b"alt-svc", b"endpoint-load-metrics")
)
EVENT_STREAM = b"text/event-stream"
STREAM_HEADERS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class Answer(Protocol):
    """A worker's answer, whose head has come."""

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None

    async def read(self) -> bytes:
        """What has come since the last read; b"" at the end."""
        ...

    def take(self) -> bytes | None:
        """The same without waiting; None if nothing has come."""
        ...


class Outlet(Protocol):
    """Where an answer goes."""

    async def start(self, status: int, headers: Headers, length: int | None) -> None: ...
    async def send(self, data: bytes) -> None: ...
    async def finish(self, data: bytes) -> None:
        """The last bytes and the end, together."""
        ...


class Watcher(Protocol):
    """Who wants to know how fast the worker is."""

    def first_token(self) -> None:
        """Of a stream."""

    def prompt_done(self) -> None:
        """Some answer has come."""

    def tokens(self, since_s: float, now_s: float, count: int) -> None:
        """So many tokens of a stream came in that time, the last of them at its end."""


class _ErrorObject(msgspec.Struct):
    code: int | str | None = None
    message: str = ""


class _ErrorPayload(msgspec.Struct):
    error: _ErrorObject


class _PlainPayload(msgspec.Struct):
    usage: sse.UsageObject | None = None


class Relay:
    """Brings answers to their callers. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def run(self, answer: Answer, job: Job, outlet: Outlet, trip: Trip, watcher: Watcher) -> Awaitable[None]:
        """Bring one answer to `outlet`, and note in `trip` what it was.

        Raises WorkerError, Overloaded; what was sent by then, the outlet knows.
        """
        if answer.status >= 300 and not 400 <= answer.status < 500:
            return _fail(answer)
        if answer.status in (401, 403):
            raise WorkerRefusedCredentials(f"the worker answered {answer.status}; check its api_key_env")
        if job.stream and answer.status == 200 and _content_type(answer).startswith(EVENT_STREAM):
            return _Stream(self._clock, answer, job, outlet, trip, watcher).run()
        return self._plain(answer, outlet, trip, watcher)

    async def _plain(self, answer: Answer, outlet: Outlet, trip: Trip, watcher: Watcher) -> None:
        data = answer.take() or await answer.read()
        watcher.prompt_done()
        trip.first_token_at = self._clock()
        await outlet.start(answer.status, _passed(answer.headers), answer.length)
        parts, size = [data], len(data)
        # look ahead, so that the last bytes leave together with the end
        while size != answer.length and (following := await answer.read()):
            await outlet.send(data)
            data = following
            size += len(data)
            if size <= MAX_READ_BYTES:
                parts.append(data)
        trip.outcome = "ok" if answer.status < 400 else "worker_refused"
        await outlet.finish(data)
        if answer.status < 400 and size <= MAX_READ_BYTES:
            _read_usage(parts, trip)


class _Stream:
    """One event stream."""

    def __init__(
        self,
        clock: Callable[[], float],
        answer: Answer,
        job: Job,
        outlet: Outlet,
        trip: Trip,
        watcher: Watcher,
    ) -> None:
        self._clock = clock
        self._answer = answer
        self._outlet = outlet
        self._trip = trip
        self._watcher = watcher
        self._watch = sse.Watch(hide_usage=not job.wants_usage)

    async def run(self) -> None:
        try:
            first = await self._first()
            if first is not None:
                await self._outlet.start(200, [*_passed(self._answer.headers), *STREAM_HEADERS], None)
                await self._follow(first)
        finally:
            self._trip.events = self._watch.events
            self._trip.usage = self._watch.usage

    async def _first(self) -> bytes | None:
        """All up to and with the first event; None if that was a refusal and has been answered.

        vLLM answers 200 before it checks some things, and then refuses in the first event. Until that has
        come, nothing is sent, so that the caller gets the status that it would have got without streaming.
        """
        data = b""
        watch = self._watch
        while not watch.events and not watch.done:
            received = await self._answer.read()
            data += watch.feed(received)
            if watch.error is not None:
                await self._refuse(watch.error)
                return None
            if not received:
                raise WorkerFailed("a stream ended before its first event")
        self._watcher.first_token()
        self._trip.first_token_at = self._clock()
        return data

    async def _follow(self, data: bytes) -> None:
        answer, watch, outlet, clock = self._answer, self._watch, self._outlet, self._clock
        gaps, tell = self._trip.gaps, self._watcher.tokens
        before = told_at = clock()
        told = watch.events
        while not watch.done:
            if data:
                await outlet.send(data)
            if watch.error is not None:
                # a worker's own failure goes to the log; the caller gets ours in its place
                raise WorkerFailed(f"in mid-stream: {_shown(watch.error)}")
            received = await answer.read()
            if not received:
                self._trip.outcome = "incomplete"  # no [DONE]; nothing is invented in its place
                await outlet.finish(watch.rest())
                return
            now = clock()
            if gaps is not None:
                gaps.add(now - before)
            data = watch.feed(received)
            if (count := watch.events - told) >= TOLD_EVERY:
                tell(told_at, now, count)
                told, told_at = watch.events, now
            before = now
        self._trip.outcome = "ok"
        await outlet.finish(data)
        await self._linger()

    async def _refuse(self, payload: bytes) -> None:
        status = _status_of(payload)
        if status >= 500:
            raise _worker_failure(status, payload)
        self._trip.outcome = "worker_refused"
        await self._outlet.start(status, [(b"content-type", b"application/json")], len(payload))
        await self._outlet.finish(payload)

    async def _linger(self) -> None:
        """Take the end of the body, which the worker sends apart from its last event."""
        try:
            async with asyncio.timeout(LINGER_S):
                while await self._answer.read():
                    pass
        except (TimeoutError, WorkerError) as error:
            log.debug("a stream's connection is not reused: %s", error)


async def _fail(answer: Answer) -> NoReturn:
    """A worker's own 5xx, or a redirect: its text goes to the log only."""
    text = b""
    while len(text) < MAX_DETAIL_BYTES and (data := await answer.read()):
        text += data
    raise _worker_failure(answer.status, text)


def _worker_failure(status: int, text: bytes) -> Exception:
    detail = f"the worker answered {status}: {_shown(text)}"
    if status == 503:
        return Overloaded("The model server is busy. Try again shortly.", retry_after_s=1, detail=detail)
    return WorkerFailed(detail)


def _shown(text: bytes) -> str:
    return text[:MAX_DETAIL_BYTES].decode(errors="replace")


def _status_of(payload: bytes) -> int:
    """The status that a worker's error object names, 502 if it names none."""
    try:
        code = msgspec.json.decode(payload, type=_ErrorPayload).error.code
    except msgspec.MsgspecError:
        return 502
    return code if isinstance(code, int) and 400 <= code <= 599 else 502


def _passed(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in PRIVATE_HEADERS]


def _content_type(answer: Answer) -> bytes:
    return next((value.lower() for name, value in answer.headers if name == b"content-type"), b"")


def _read_usage(parts: list[bytes], trip: Trip) -> None:
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        payload = msgspec.json.decode(body, type=_PlainPayload)
    except msgspec.MsgspecError:
        trip.outcome = "incomplete"
        return
    if payload.usage:
        trip.usage = payload.usage.usage()

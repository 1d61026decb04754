"""Both ends of one caller's request: its body in, its answer out, and whether it is still there."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from gateway.errors import BodyTooLarge, GatewayError, UnsupportedMediaType
from gateway.headers import JSON, lines, of_error, told
from gateway.model import Fields, Headers, Trip
from gateway.relay import OF_STREAMS, Pipe

EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
# A comment, to which no SDK minds. One line end only: after two, some take it for an event without data.
HEARTBEAT = b": still here\n"


class ClientGone(Exception):
    """The caller left while its request was still being read."""


class Line(Protocol):
    """The way to one caller: the server's own (`call.py`), or through ASGI (`asgi.py`).

    Heads are lines of headers as they go over the wire, each with its CRLF.
    """

    fields: Fields
    task: asyncio.Task[None]  # that serves it

    @property
    def is_behind(self) -> bool:
        """The caller has yet to take what was sent, or has left. Else, to send a little needs no waiting."""
        ...

    async def body(self, most_bytes: int) -> bytes | None:
        """The whole body; None if it is larger than that. Raises UploadTooSlow, ClientGone."""
        ...

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` once the caller has left; at once if it has left already."""
        ...

    def unwatch(self) -> None:
        """Forget about that."""
        ...

    async def reply(self, status: int, head: bytes, body: bytes) -> None:
        """A whole answer."""
        ...

    async def start(self, status: int, head: bytes, length: int | None) -> None:
        """The head of an answer; without a length, the end of the body is told by its framing."""
        ...

    async def send(self, data: bytes) -> None:
        """A part of the body."""
        ...

    async def finish(self, data: bytes) -> None:
        """The last of it, and the end."""
        ...

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        """A way for the parts that needs no waiting, if there is one. See `relay.Pipe`."""
        ...

    def abort(self) -> None:
        """End the connection at once, whatever is still buffered."""
        ...


class Exchange:
    """One request. Work for a caller who leaves is cancelled; `gone` tells that from other reasons."""

    __slots__ = (
        "_clock", "_finished", "_has_beaten", "_head", "_is_event_stream", "_line", "_max_body_bytes",
        "farewell", "gone", "sending_since", "started", "trip",
    )  # fmt: skip

    def __init__(self, line: Line, trip: Trip, *, max_body_bytes: int, clock: Callable[[], float]) -> None:
        self._line = line
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._finished = False
        self._is_event_stream = False
        self._has_beaten = False  # before there was an answer, so that it comes in the stream, whatever it is
        self._head: tuple[int, Headers, int | None] | None = None  # not sent yet
        self.trip = trip
        self.started = False  # the answer has begun; its status is settled
        self.farewell: GatewayError | None = None
        self.gone = ""  # why the task was cancelled: "client_gone", "client_stalled", or with a farewell
        self.sending_since: float | None = None  # while the caller's socket takes nothing

    # In

    async def body(self) -> bytes:
        """The whole body. Raises CallerError for what cannot be read, ClientGone.

        What a refused caller still sends is discarded by the server, so that the refusal arrives.
        """
        self._check_fields()
        body = await self._line.body(self._max_body_bytes)
        if body is None:
            raise self._too_large()
        self._line.watch(self._lost)
        return body

    def _check_fields(self) -> None:
        fields = self._line.fields
        if fields.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType("Compressed bodies are not read. Send it without Content-Encoding.")
        if int(fields.get(b"content-length", 0)) > self._max_body_bytes:
            raise self._too_large()
        content_type = fields.get(b"content-type", b"")
        if content_type != b"application/json" and _media_type(content_type) != b"application/json":
            raise UnsupportedMediaType("Send JSON with the header Content-Type: application/json.")

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"The request's body is larger than {self._max_body_bytes} bytes, the limit here."
        )

    def _lost(self) -> None:
        self.leave("client_gone")

    def leave(self, why: str, farewell: GatewayError | None = None) -> None:
        """Stop serving; harmless once the answer is out.

        why: the outcome to be counted. farewell: what to tell a caller who is still there.
        """
        if self._finished:
            if why == "client_stalled":  # before it took the end of its answer
                self.trip.outcome = why
                self._line.abort()
        elif not self.gone:
            self.gone = why
            self.farewell = farewell
            self._line.task.cancel()

    def end(self) -> None:
        """Nothing more will be sent."""
        if not self._finished:
            self._finished = True
            self._line.unwatch()
        if self.gone == "client_stalled":
            self._line.abort()  # closing would wait for the caller to take what is buffered

    # Out

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer; if heartbeats have begun a stream, its only event, which has to be JSON."""
        if self._has_beaten:
            await self.finish(b"data: %b\n\n" % b" ".join(body.splitlines()))
            return
        self.trip.status = status
        self.started = self._finished = True
        self._line.unwatch()
        self.sending_since = self._clock()
        await self._line.reply(status, self._lines(headers), body)
        self.sending_since = None

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head of the answer, which leaves with the body if that has a length.

        Without a length, the end of the body is told by its framing. A stream may have begun already.
        """
        if self._has_beaten:
            return
        self.trip.status = status
        self.started = True
        self._head = (status, headers, length)
        if length is None:
            await self._write_head(status, headers, None)

    async def _write_head(self, status: int, headers: Headers, length: int | None) -> None:
        self._is_event_stream = any(value.startswith(b"text/event-stream") for _, value in headers)
        self.sending_since = self._clock()
        await self._line.start(status, self._lines(headers), length)
        self._head = None  # not before: who is sent away while it waits for its turn has no head yet
        self.sending_since = None

    def _lines(self, headers: Headers) -> bytes:
        return lines(headers) + told(self.trip, self._clock())

    async def send(self, data: bytes) -> None:
        if self._head is not None:
            await self._write_head(*self._head)
        self.sending_since = self._clock()
        await self._line.send(data)
        self.sending_since = None

    async def finish(self, data: bytes = b"") -> None:
        """The last bytes and the end, together. From here on, leaving is no longer leaving early."""
        self._finished = True
        self._line.unwatch()
        if self._head is not None:
            await self._write_head(*self._head)
        self.sending_since = self._clock()
        await self._line.finish(data)
        self.sending_since = None

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        """A way for the parts of the body that needs no waiting, if the caller's line has one.

        on_full: is called with True when more had better not be written, and with False when it may.
        """

        def note(is_full: bool) -> None:
            self.sending_since = self._clock() if is_full else None
            on_full(is_full)

        return self._line.pipe(note)

    def beat(self) -> None:
        """Tell a caller who waits for a stream that it is still served; begins the stream, if nothing has.

        Not to one who has yet to take something else.
        """
        is_busy = self.sending_since is not None or self._head is not None
        if is_busy or self._finished or self.gone or self._line.is_behind:
            return
        if not self.started:
            self._begin_early()
        if self._is_event_stream:
            _at_once(self._line.send(HEARTBEAT))

    def _begin_early(self) -> None:
        trip = self.trip
        if not trip.worker:
            trip.queue_s = self._clock() - trip.began  # so far
        trip.status = 200
        self.started = self._is_event_stream = self._has_beaten = True
        _at_once(self._line.start(200, self._lines((EVENT_STREAM, *OF_STREAMS)), None))

    async def fail(self, error: GatewayError) -> None:
        """Tell the caller of an error: by status, or in the stream if the head is out already."""
        self.trip.outcome = error.outcome or error.code
        self.trip.detail = error.detail
        body = json.dumps(error.body()).encode()
        if not self.started or self._head is not None:
            await self.reply(error.status, [JSON, *of_error(error)], body)
        elif self._is_event_stream:
            await self.finish(b"data: %b\n\n" % self._told_late(error))
        else:
            self._finished = True
            self._line.abort()  # a body that is cut short tells more than one with an error inside

    def _told_late(self, error: GatewayError) -> bytes:
        """An error that comes in a stream, where SDKs do not look at the head for the request's id."""
        body = error.body()
        body["error"]["message"] += f" (request id {self.trip.id})"
        return json.dumps(body).encode()


def _at_once(sending: Coroutine[Any, Any, None]) -> None:
    """Send what nobody has to wait for, with no task."""
    try:
        sending.send(None)
    except StopIteration:
        return
    sending.close()
    raise RuntimeError("a caller who is not behind is waited for")


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()

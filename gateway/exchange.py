"""Both ends of one caller's request: its body in, its answer out, and whether it is still there."""

import asyncio
import json
from collections.abc import Callable
from typing import Protocol

from gateway.errors import BodyTooLarge, GatewayError, UnsupportedMediaType
from gateway.headers import JSON, lines, of_error, told
from gateway.model import Fields, Headers, Trip
from gateway.relay import Pipe


class ClientGone(Exception):
    """The caller left while its request was still being read."""


class Line(Protocol):
    """The way to one caller: the server's own (`call.py`), or through ASGI (`asgi.py`).

    Heads are lines of headers as they go over the wire, each with its CRLF.
    """

    fields: Fields
    task: asyncio.Task[None]  # that serves it

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
        "_clock", "_finished", "_head", "_is_event_stream", "_line", "_max_body_bytes",
        "farewell", "gone", "sending_since", "started", "trip",
    )  # fmt: skip

    def __init__(self, line: Line, trip: Trip, *, max_body_bytes: int, clock: Callable[[], float]) -> None:
        self._line = line
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._finished = False
        self._is_event_stream = False
        self._head: tuple[int, Headers, int | None] | None = None  # not sent yet
        self.trip = trip
        self.started = False  # the answer has begun; its status is settled
        self.farewell: GatewayError | None = None
        self.gone = ""  # why the task was cancelled: "client_gone", "client_stalled" or "draining"
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
        """A whole answer."""
        self.trip.status = status
        self.started = self._finished = True
        self._line.unwatch()
        self.sending_since = self._clock()
        await self._line.reply(status, self._lines(headers), body)
        self.sending_since = None

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head of the answer, which leaves with the body if that has a length.

        Without a length, the end of the body is told by its framing.
        """
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

    async def fail(self, error: GatewayError) -> None:
        """Tell the caller of an error: by status, or in the stream if the head is out already."""
        self.trip.outcome = error.code
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


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()

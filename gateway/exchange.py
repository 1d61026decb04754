"""Both ends of one caller's request: its body in, its answer out, and whether it is still there."""

import asyncio
import json
from collections.abc import Callable
from typing import NoReturn, Protocol

from starlette.types import Message, Receive, Scope, Send

from gateway.errors import BodyTooLarge, GatewayError, UnsupportedMediaType, UploadTooSlow
from gateway.headers import JSON, block, of_error, told
from gateway.model import Headers, Trip

CONNECTION = "gateway.connection"  # in a scope's extensions


class ClientGone(Exception):
    """The caller left while its request was still being read."""


class Connection(Protocol):
    """What the server can do for one request beyond ASGI. See `protocol.py`."""

    upload_stalled: bool  # nothing more of the body came for longer than is allowed

    def whole_body(self) -> bytes | None:
        """The body, if all of it has come by now."""
        ...

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` once the caller has left; at once if it has left already."""
        ...

    def unwatch(self) -> None:
        """Forget about that; `reply` does so by itself."""
        ...

    def is_sent_to_by(self, send: Send) -> bool:
        """Whether `send` brings messages here as they are, with no middleware in between."""
        ...

    def reply(self, status: int, headers: bytes, body: bytes) -> bool:
        """Send a whole answer with one write. False if that cannot be done now; ASGI can always."""
        ...

    def chunk(self, data: bytes) -> bool:
        """Send a part of a streamed body, likewise."""
        ...

    def flush(self) -> None:
        """Make the writes that `reply` and `chunk` have put off, before others are made."""
        ...

    def abort(self) -> None:
        """End the connection at once, whatever is still buffered."""
        ...


class Exchange:
    """One request. Work for a caller who leaves is cancelled; `gone` tells that from other reasons."""

    __slots__ = (
        "_clock", "_connection", "_finished", "_head", "_is_direct", "_is_event_stream", "_max_body_bytes",
        "_receive", "_scope", "_send", "farewell", "gone", "sending_since", "started", "task", "trip",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        trip: Trip,
        *,
        max_body_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._connection: Connection = scope["extensions"].pop(CONNECTION)  # or they would hold each other
        self._is_direct = self._connection.is_sent_to_by(send)
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._finished = False
        self._is_event_stream = False
        self._head: tuple[int, Headers, int] | None = None  # not sent yet: it leaves with the body
        self.trip = trip
        self.task = asyncio.current_task()
        self.started = False  # the answer has begun; its status is settled
        self.farewell: GatewayError | None = None
        self.gone = ""  # why the task was cancelled: "client_gone", "client_stalled" or "draining"
        self.sending_since: float | None = None  # while the caller's socket takes nothing

    # In

    async def body(self) -> bytes:
        """The whole body. Raises CallerError for what cannot be read, ClientGone.

        What a refused caller still sends is discarded by the server, so that the refusal arrives.
        """
        self._check_headers()
        body = self._connection.whole_body() if self._is_direct else None
        if body is None:
            body = await self._received_body()
        elif len(body) > self._max_body_bytes:
            raise self._too_large()
        self._connection.watch(self._lost)
        return body

    async def _received_body(self) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request" or self._connection.upload_stalled:
                self._refuse_part(message)
            more = message.get("more_body", False)
            parts.append(message["body"])
            size += len(message["body"])
            if size > self._max_body_bytes:
                raise self._too_large()
        return b"".join(parts)

    def _refuse_part(self, message: Message) -> NoReturn:
        if message["type"] == "http.disconnect":
            raise ClientGone
        raise UploadTooSlow("The request's body came to a halt. Send it without long pauses.")

    def _check_headers(self) -> None:
        by_name = dict(self._scope["headers"])
        if by_name.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType("Compressed bodies are not read. Send it without Content-Encoding.")
        if int(by_name.get(b"content-length", 0)) > self._max_body_bytes:
            raise self._too_large()
        content_type = by_name.get(b"content-type", b"")
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
                self._connection.abort()
        elif not self.gone and self.task is not None:
            self.gone = why
            self.farewell = farewell
            self.task.cancel()

    def end(self) -> None:
        """Nothing more will be sent."""
        if not self._finished:
            self._finished = True
            self._connection.unwatch()
        if self.gone == "client_stalled":
            self._connection.abort()  # closing would wait for the caller to take what is buffered

    # Out

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head of the answer. Without a length, the end of the body is told by its framing."""
        self.trip.status = status
        self.started = True
        if length is not None:
            self._head = (status, headers, length)
        else:
            await self._write_head(status, headers)

    async def _write_head(self, status: int, headers: Headers) -> None:
        self._is_event_stream = any(value.startswith(b"text/event-stream") for _, value in headers)
        told_headers = [*headers, *told(self.trip, self._clock())]
        await self._write({"type": "http.response.start", "status": status, "headers": told_headers})

    async def send(self, data: bytes) -> None:
        if self._head is not None:
            await self._release_head(self._head)
        if not (self._is_direct and self._connection.chunk(data)):
            await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """The last bytes and the end, together. From here on, leaving is no longer leaving early."""
        self._finished = True
        if self._head is not None:
            status, headers, _ = self._head
            if self._is_direct and self._connection.reply(
                status, block(headers, self.trip, self._clock()), data
            ):
                return
            await self._release_head(self._head)
        self._connection.unwatch()
        await self._write({"type": "http.response.body", "body": data, "more_body": False})

    async def _release_head(self, head: tuple[int, Headers, int]) -> None:
        status, headers, length = head
        self._head = None
        await self._write_head(status, [*headers, (b"content-length", b"%d" % length)])

    async def _write(self, message: Message) -> None:
        self._connection.flush()
        self.sending_since = self._clock()
        await self._send(message)
        self.sending_since = None

    async def fail(self, error: GatewayError) -> None:
        """Tell the caller of an error: by status, or in the stream if the head is out already."""
        self.trip.outcome = error.code
        self.trip.detail = error.detail
        body = json.dumps(error.body()).encode()
        if not self.started or self._head is not None:
            await self.start(error.status, [JSON, *of_error(error)], len(body))
            await self.finish(body)
        elif self._is_event_stream:
            await self.finish(b"data: %b\n\n" % self._told_late(error))
        else:
            self._finished = True
            self._connection.abort()  # a body that is cut short tells more than one with an error inside

    def _told_late(self, error: GatewayError) -> bytes:
        """An error that comes in a stream, where SDKs do not look at the head for the request's id."""
        body = error.body()
        body["error"]["message"] += f" (request id {self.trip.id})"
        return json.dumps(body).encode()


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()

"""Both ends of one caller's request: its body in, its answer out, and whether it is still there."""

import asyncio
import json
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send

from gateway.errors import BodyTooLarge, GatewayError, UnsupportedMediaType, UploadTooSlow
from gateway.headers import JSON, of_error, told
from gateway.model import Headers, Trip

ABORT = "gateway.abort"  # in a scope's extensions: a function that ends the connection at once


class ClientGone(Exception):
    """The caller left while its request was still being read."""


class Exchange:
    """One request over ASGI.

    Once the body is read, a task listens for the caller's leaving and then cancels the task that serves the
    request; `gone` tells that from any other cancellation.
    """

    __slots__ = (
        "_abort", "_clock", "_finished", "_max_body_bytes", "_read_timeout_s", "_receive", "_scope", "_send",
        "_watcher", "farewell", "gone", "sending_since", "started", "task", "trip",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        trip: Trip,
        *,
        max_body_bytes: int,
        read_timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._max_body_bytes = max_body_bytes
        self._read_timeout_s = read_timeout_s
        self._clock = clock
        self._watcher: asyncio.Task[None] | None = None
        self._finished = False
        self.trip = trip
        self.task = asyncio.current_task()
        self.started = False  # the head of the answer is out
        self.farewell: GatewayError | None = None
        self.gone = ""  # why the caller's task was cancelled: "client_gone", "client_stalled" or "draining"
        self.sending_since: float | None = None  # while the caller's socket takes nothing

    # In

    async def body(self) -> bytes:
        """The whole body. Raises CallerError for what cannot be read, ClientGone.

        What a refused caller still sends is discarded by the server, so that the refusal arrives.
        """
        self._check_headers()
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self._read_timeout_s) as limit:
                while more:
                    message = await self._next_part()
                    more = message.get("more_body", False)
                    size += len(message["body"])
                    if size > self._max_body_bytes:
                        raise self._too_large()
                    parts.append(message["body"])
                    if more:
                        limit.reschedule(asyncio.get_running_loop().time() + self._read_timeout_s)
        except TimeoutError:
            raise UploadTooSlow(
                f"The request's body came to a halt for {self._read_timeout_s:g} s. Send it without pauses."
            ) from None
        self._watcher = asyncio.create_task(self._watch())
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _next_part(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message

    def _check_headers(self) -> None:
        content_type = b""
        for name, value in self._scope["headers"]:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise UnsupportedMediaType(
                    "Compressed bodies are not read. Send it without Content-Encoding."
                )
            elif name == b"content-length" and int(value) > self._max_body_bytes:
                raise self._too_large()
        media_type = content_type.partition(b";")[0].strip().lower()
        if media_type != b"application/json":
            raise UnsupportedMediaType("Send JSON with the header Content-Type: application/json.")

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"The request's body is larger than {self._max_body_bytes} bytes, the limit here."
        )

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.leave("client_gone")

    def leave(self, why: str, farewell: GatewayError | None = None) -> None:
        """Stop serving; harmless once the answer is out.

        why: the outcome to be counted. farewell: what to tell a caller who is still there.
        """
        if not self._finished and not self.gone and self.task is not None:
            self.gone = why
            self.farewell = farewell
            self.task.cancel()

    def end(self) -> None:
        """Nothing more will be sent."""
        if self._finished:
            return  # the server then ends the watcher's wait itself
        self._finished = True
        if self._watcher is not None:
            self._watcher.cancel()
        if self.gone == "client_stalled" and (abort := self._scope.get("extensions", {}).get(ABORT)):
            abort()  # closing would wait for the caller to take what is buffered

    # Out

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        """The head of the answer. Without a length, the end of the body is told by its framing."""
        self.trip.status = status
        out = [*headers, *told(self.trip, self._clock())]
        if length is not None:
            out.append((b"content-length", b"%d" % length))
        self.started = True
        await self._write({"type": "http.response.start", "status": status, "headers": out})

    async def send(self, data: bytes) -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        self._finished = True  # from here on, leaving is no longer leaving early
        await self._write({"type": "http.response.body", "body": data, "more_body": False})

    async def _write(self, message: Message) -> None:
        self.sending_since = self._clock()
        await self._send(message)
        self.sending_since = None

    async def fail(self, error: GatewayError) -> None:
        """Tell the caller of an error: by status, or in the stream if the head is out already."""
        self.trip.outcome = error.code
        self.trip.detail = error.detail
        if self.started:
            data = b"data: " + json.dumps(error.body()).encode() + b"\n\n"
            await self.finish(data)
            return
        body = json.dumps(error.body()).encode()
        await self.start(error.status, [JSON, *of_error(error)], len(body))
        await self.finish(body)

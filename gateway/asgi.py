"""A caller's line through ASGI: how every server and every middleware could serve it.

Slower than the server's own (`call.py`), which it is the reference for. It serves what that leaves out.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn, Protocol, cast

from starlette.types import Message, Receive, Scope, Send

from gateway.errors import UploadTooSlow
from gateway.exchange import ClientGone
from gateway.headers import by_name, split
from gateway.relay import Pipe

CONNECTION = "gateway.connection"  # in a scope's extensions


class Connection(Protocol):
    """What ASGI has no words for, and the server tells besides. See `protocol.py`."""

    upload_stalled: bool  # nothing more of the body came for longer than is allowed

    def watch(self, on_lost: Callable[[], None]) -> None: ...
    def unwatch(self) -> None: ...
    def abort(self) -> None: ...


class AsgiLine:
    """An `exchange.Line` made of a scope and its two functions."""

    __slots__ = ("_connection", "_receive", "_send", "abort", "fields", "task", "unwatch", "watch")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["extensions"].pop(CONNECTION)  # or they would hold each other
        self.fields = by_name(scope["headers"])
        self.task = cast("asyncio.Task[None]", asyncio.current_task())  # a server runs applications in tasks
        self._connection = connection
        self._receive = receive
        self._send = send
        self.watch = connection.watch
        self.unwatch = connection.unwatch
        self.abort = connection.abort

    async def body(self, most_bytes: int) -> bytes | None:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request" or self._connection.upload_stalled:
                _refuse_part(message)
            more = message.get("more_body", False)
            parts.append(message["body"])
            size += len(message["body"])
            if size > most_bytes:
                return None
        return b"".join(parts)

    async def reply(self, status: int, head: bytes, body: bytes) -> None:
        await self.start(status, head, len(body))
        await self.finish(body)

    async def start(self, status: int, head: bytes, length: int | None) -> None:
        headers = list(split(head))
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        return None  # each message may have to wait


def _refuse_part(message: Message) -> NoReturn:
    if message["type"] == "http.disconnect":
        raise ClientGone
    raise UploadTooSlow("The request's body came to a halt. Send it without long pauses.")

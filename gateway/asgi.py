"""A caller's line through ASGI: how every server and every middleware could serve it.

Slower than the server's own (`call.py`), which it is the reference for. It serves what that leaves out.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from starlette.types import Receive, Scope, Send

from gateway.errors import GatewayError
from gateway.exchange import ClientGone
from gateway.headers import by_name, split
from gateway.relay import Pipe

CONNECTION = "gateway.connection"  # in a scope's extensions


class Connection(Protocol):
    """What ASGI has no words for, and the server tells besides. See `protocol.py`."""

    upload_failure: GatewayError | None  # why no more of the body will come

    @property
    def is_behind(self) -> bool: ...
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

    @property
    def is_behind(self) -> bool:
        return self._connection.is_behind

    async def body(self, most_bytes: int) -> bytes | None:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            if self._connection.upload_failure is not None:
                raise self._connection.upload_failure
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

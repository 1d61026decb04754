"""A caller's line without ASGI in between: one request on a connection, as the server itself serves it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import GatewayError
from gateway.exchange import ClientGone
from gateway.model import Fields
from gateway.outbox import Outbox

CLOSE_LINE = b"connection: close\r\n"
BODILESS = frozenset((204, 304))


class Wire(Protocol):
    """The connection that a call came on."""

    transport: asyncio.Transport
    flow: FlowControl
    outbox: Outbox

    def default_head(self) -> bytes:
        """Headers that every answer has."""
        ...

    def on_response_complete(self) -> None: ...

    def hang_up(self) -> None:
        """End the connection, now that all has been said."""
        ...


def _discard(data: bytes) -> None:
    """Takes the place of a write. Tokens come until the task has heard that its caller is gone."""


class Call:
    """An `exchange.Line`, and to uvicorn's protocol what its own request-response cycle is.

    Made when the head has come; `feed` and `fed` bring the body, `lost` and `full` tell of the connection.
    """

    __slots__ = (
        "_asked", "_chunked", "_on_full", "_on_lost", "_parts", "_size", "_waiter", "_whole", "_wire",
        "disconnected", "fields", "keep_alive", "response_complete", "response_started", "task",
        "upload_failure", "write_chunks",
    )  # fmt: skip

    task: asyncio.Task[None]  # set before it runs

    def __init__(self, wire: Wire, fields: Fields, keep_alive: bool) -> None:
        self._wire = wire
        self.fields = fields
        self.keep_alive = keep_alive  # another request may follow
        self.response_started = self.response_complete = False
        self.disconnected = False
        self.upload_failure: GatewayError | None = None  # why no more of the body will come
        self._parts: list[bytes] = []
        self._size = 0
        self._asked = False  # for the body: else, much of it is not taken off the socket
        self._whole = False  # the body has come
        self._chunked = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._on_full: Callable[[bool], None] | None = None

    # Told by the protocol

    def feed(self, data: bytes) -> None:
        """A part of the body has come."""
        if not self.response_complete:  # else it is discarded
            self._parts.append(data)
            self._size += len(data)
            if self._size > HIGH_WATER_LIMIT and not self._asked:
                self._wire.flow.pause_reading()
            self.set()

    def fed(self) -> None:
        """That was all of it."""
        self._whole = True
        self.set()

    def lost(self) -> None:
        """The caller has left."""
        self.disconnected = True
        self.write_chunks = _discard
        if self._on_lost is not None:
            self._on_lost()
        self._on_lost = self._on_full = None  # they hold each other, and would wait for the garbage collector
        self.set()

    def full(self, is_full: bool) -> None:
        """The transport has enough to write for now, or no longer."""
        if self._on_full is not None:
            self._on_full(is_full)

    @property
    def message_event(self) -> "Call":
        """As of uvicorn's cycle: what it sets when something of the request has changed."""
        return self

    def set(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Asked by the exchange

    async def body(self, most_bytes: int) -> bytes | None:
        self._asked = True
        try:
            while not self._whole and self._size <= most_bytes:
                await self._more()
        finally:
            self._asked = False  # a refusal may have to wait, and its caller goes on uploading
        parts, self._parts = self._parts, []
        if self._size > most_bytes:
            return None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _more(self) -> None:
        if self.disconnected:
            raise ClientGone
        if self.upload_failure is not None:
            raise self.upload_failure
        self._wire.flow.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def watch(self, on_lost: Callable[[], None]) -> None:
        if self.disconnected:
            on_lost()
        else:
            self._on_lost = on_lost
            if self._wire.flow.read_paused:
                self._wire.flow.resume_reading()  # a connection that is not read does not tell of its end

    def unwatch(self) -> None:
        self._on_lost = None

    @property
    def is_behind(self) -> bool:
        return self.disconnected or self._wire.transport.get_write_buffer_size() > 0

    async def reply(self, status: int, head: bytes, body: bytes) -> None:
        if self._wire.flow.write_paused:
            await self._wire.flow.drain()
        if not self.disconnected:
            length = b"content-length: %d\r\n" % len(body)
            wire = self._wire
            wire.outbox.write(wire.transport, self._head(status, head, length) + body)
        self._end()

    async def start(self, status: int, head: bytes, length: int | None) -> None:
        await self._drained()
        self._chunked = length is None and status not in BODILESS
        framing = b"transfer-encoding: chunked\r\n" if length is None else b"content-length: %d\r\n" % length
        self._write(self._head(status, head, framing if self._chunked or length is not None else b""))

    async def send(self, data: bytes) -> None:
        await self._drained()
        self.write(data)

    async def finish(self, data: bytes) -> None:
        await self._drained()
        self.write(data)
        if self._chunked:
            self._write(b"0\r\n\r\n")
        self._end()

    def pipe(self, on_full: Callable[[bool], None]) -> "Call | None":
        """Itself; None where parts have no frames of their own, while the transport is full or gone."""
        if not self._chunked or self._wire.flow.write_paused or self.disconnected:
            return None
        self._on_full = on_full
        self.write_chunks = self._wire.transport.write
        return self

    def write(self, data: bytes) -> None:
        """A part of the body, without waiting."""
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def abort(self) -> None:
        self.disconnected = True
        self.write_chunks = _discard
        self._wire.transport.abort()

    def _head(self, status: int, head: bytes, framing: bytes) -> bytes:
        self.response_started = True
        if CLOSE_LINE in head:
            self.keep_alive = False
        elif not self.keep_alive:
            framing += CLOSE_LINE
        return b"%b%b%b%b\r\n" % (STATUS_LINE[status], self._wire.default_head(), framing, head)

    def _write(self, data: bytes) -> None:
        if not self.disconnected:
            self._wire.outbox.flush()  # what came before it
            self._wire.transport.write(data)

    async def _drained(self) -> None:
        if self._wire.flow.write_paused:
            await self._wire.flow.drain()

    def _end(self) -> None:
        self.response_complete = True
        self._on_lost = self._on_full = None
        if not self.keep_alive:
            self._wire.hang_up()
        self._wire.on_response_complete()

"""What stands in for sockets? An event loop whose connections end in functions.

The gateway's own server, protocols and worker clients run on it unchanged. What is left out, system calls and
the loop's own reading and writing, is in what benchmarks.overhead measures of real programs.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvloop
from starlette.types import ASGIApp

from gateway import settings
from gateway.server import running

GUARD_S = 10.0  # for what takes milliseconds
END_BYTES = 6  # of a part of an answer, that tell whether it is the last

Batch = Callable[[int], Awaitable[None]]  # does something so many times
Hear = Callable[[bytes], None]
Makes = Callable[..., asyncio.Protocol]


def deaf(data: bytes) -> None:
    """Who hears nothing."""


class Wire(asyncio.Transport):
    """This end of a connection: what is written to it is heard at once, and its buffer is always empty."""

    def __init__(self, protocol: asyncio.BaseProtocol, hear: Hear) -> None:
        super().__init__()
        self._protocol = protocol
        self._hear = hear
        self._closing = False

    def write(self, data: Any) -> None:
        self._hear(data)

    def writelines(self, list_of_data: Any) -> None:
        self._hear(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Nobody writes more than was asked for."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


class NoServer:
    """What a server has in place of a socket that listens."""

    def close(self) -> None:
        """There is nothing to close."""

    async def wait_closed(self) -> None:
        """Nor to wait for."""


class Loop(uvloop.Loop):
    """uvloop, but for connections: workers are fakes of this process, and callers come by `call`.

    hears: makes what a fake worker does with what it is sent; it is given the gateway's end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hears: Callable[[asyncio.Protocol], Hear] = lambda protocol: deaf
        self.to_workers: list[asyncio.Protocol] = []  # the gateway's ends, in the order of their making
        self._accept: Makes

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Makes, *_: object, **__: object
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = protocol_factory()
        wire = Wire(protocol, self.hears(protocol))
        protocol.connection_made(wire)
        self.to_workers.append(protocol)
        return wire, protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Makes, *_: object, **__: object
    ) -> NoServer:
        self._accept = protocol_factory
        return NoServer()

    def call(self, hear: Hear) -> asyncio.Protocol:
        """A caller's connection to what is `served`: the gateway's end of it. To be called in the loop."""
        protocol = self._accept()
        protocol.connection_made(Wire(protocol, hear))
        return protocol


@contextmanager
def served(loop: Loop, app: ASGIApp, rules: settings.Server) -> Iterator[None]:
    """Serve an application as the gateway does, for as long as the block lasts."""
    stop = asyncio.Event()

    async def serve(began: asyncio.Future[None]) -> None:
        with socket.socket() as listener:  # that nobody listens on
            async with running([(app, listener)], rules):
                began.set_result(None)
                await stop.wait()

    async def begin() -> asyncio.Task[None]:
        began = loop.create_future()
        task = loop.create_task(serve(began))
        await asyncio.wait([task, began], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()  # raises what hindered it
        return task

    async def end() -> None:
        stop.set()
        await task

    task = loop.run_until_complete(begin())
    try:
        yield
    finally:
        loop.run_until_complete(end())


class Crowd:
    """Some callers, each of which asks again as soon as it is answered.

    ends: of END_BYTES each, one of which ends the last part of an answer, and no other part.
    """

    def __init__(self, loop: Loop, callers: int, request: bytes, ends: Collection[bytes]) -> None:
        self._loop = loop
        self._request = request
        self._ends = ends
        self._left = self._open = 0
        self._connections: Sequence[asyncio.Protocol] = [self._caller() for _ in range(callers)]

    async def ask(self, count: int) -> None:
        """So many requests, to the end of the last answer."""
        self._left = self._open = count
        self._done: asyncio.Future[None] = self._loop.create_future()
        for connection in self._connections:
            self._next(connection)
        async with asyncio.timeout(GUARD_S):
            await self._done

    def _caller(self) -> asyncio.Protocol:
        def hear(data: bytes) -> None:
            if data[-END_BYTES:] in self._ends:
                self._open -= 1
                if self._open:
                    self._next(connection)
                else:
                    self._done.set_result(None)

        connection = self._loop.call(hear)
        return connection

    def _next(self, connection: asyncio.Protocol) -> None:
        if self._left:
            self._left -= 1
            self._loop.call_soon(connection.data_received, self._request)


async def answer_to(loop: Loop, request: bytes, ends: Collection[bytes]) -> bytes:
    """What one caller hears, to the end, or until it has waited long enough for that."""
    heard = bytearray()
    done = loop.create_future()

    def hear(data: bytes) -> None:
        heard.extend(data)
        if data[-END_BYTES:] in ends and not done.done():
            done.set_result(None)

    loop.call(hear).data_received(request)
    await asyncio.wait([done], timeout=GUARD_S)
    return bytes(heard)

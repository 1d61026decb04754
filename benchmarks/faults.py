"""What if the network between two programs is slow, stalls, drips or breaks? A proxy that makes it so."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Self

PIECE_BYTES = 65536
MOST_PIECES = 64  # held of a connection each way; whoever sends more has to wait, as with a real network
NO_LINGERING = struct.pack("ii", 1, 0)  # close() then resets the connection

Pieces = asyncio.Queue[tuple[float, bytes]]  # each with the loop's time from which on it may go; b"" ends


class Ending(Enum):
    """How a connection is cut off."""

    FIN = "fin"
    RESET = "reset"


class Way:
    """One direction through a proxy, and what befalls the bytes of all connections there.

    latency_s: for what comes from then on.
    drip_s: if set, bytes go one by one, each so long after the last.
    """

    def __init__(self, holding: asyncio.Event) -> None:
        """holding: is set while a stall keeps something back."""
        self.latency_s = 0.0
        self.drip_s: float | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._holding = holding
        self._cut: tuple[int, Ending] | None = None

    def stall(self) -> None:
        """Let nothing through. Connections stay open, and new ones are taken."""
        self._flows.clear()

    def resume(self) -> None:
        """Let through what has been kept back, and what comes."""
        self._flows.set()

    def cut_after(self, count: int, ending: Ending) -> None:
        """So many bytes more, of whichever connection; then the one that has the next is cut off on both
        sides, once."""
        self._cut = (count, ending)

    async def flowing(self) -> None:
        """Wait for the end of a stall."""
        while not self._flows.is_set():  # a stall that follows a resume at once holds as well
            self._holding.set()
            await self._flows.wait()

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """What goes at once."""
        if self.drip_s is None:
            yield piece
        else:
            yield from (piece[at : at + 1] for at in range(len(piece)))

    def passing(self, data: bytes) -> tuple[bytes, Ending | None]:
        """As much of it as goes on, and how the connection ends then, if it does."""
        if self._cut is None:
            return data, None
        left, ending = self._cut
        if len(data) <= left:
            self._cut = (left - len(data), ending)
            return data, None
        self._cut = None
        return data[:left], ending


class FaultProxy:
    """`async with FaultProxy(port) as proxy` listens on a port of its own, and forwards to that on loopback.

    up: the way to the target. down: the way back.
    holding: set while a stall keeps something back.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.holding = asyncio.Event()
        self.up, self.down = Way(self.holding), Way(self.holding)
        self.is_mute = False  # takes connections, and neither forwards nor answers anything on them
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(not task.done() for task in self._connections)

    def stall(self) -> None:
        """Let nothing through, either way."""
        self.up.stall()
        self.down.stall()

    def resume(self) -> None:
        """End all stalls."""
        self.up.resume()
        self.down.resume()
        self.holding.clear()

    def half_close(self, way: Way) -> None:
        """End one way of all connections, as if who sends there had nothing more to say.

        What it sends all the same is dropped; the other way goes on.
        """
        for task, connection in self._connections.items():
            if not task.done():
                connection.half_close(way)

    async def reset(self) -> None:
        """Reset all connections on both sides, and return when they are gone. What they held is lost."""
        broken, self._connections = self._connections, {}
        for task, connection in broken.items():
            connection.reset()
            task.cancel()
        ends = await asyncio.gather(*broken, return_exceptions=True)
        for connection in broken.values():
            await connection.closed()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def refuse(self) -> None:
        """Take no new connection: callers get ECONNREFUSED. Open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def admit(self) -> None:
        """Take connections; after refuse() on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        task = asyncio.create_task(connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Those that have ended well; of the others, reset() tells."""
        if not task.cancelled() and not task.exception():
            self._connections.pop(task, None)

    async def __aenter__(self) -> Self:
        await self.admit()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        await self.reset()


class _Connection:
    """A caller's, and the one to the target that belongs to it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self._ends: dict[Way, asyncio.StreamWriter] = {}  # where each way leads
        self._half_closed: set[Way] = set()

    async def run(self) -> None:
        """Until either side has ended and what it sent before has gone on."""
        try:
            if self._proxy.is_mute:
                await self._swallow()
            else:
                await self._forward()
        finally:
            for writer in self._writers:
                writer.close()
        await self.closed()

    async def _swallow(self) -> None:
        with suppress(ConnectionError):
            while await self._reader.read(PIECE_BYTES):
                pass

    async def _forward(self) -> None:
        proxy, (caller,) = self._proxy, self._writers
        try:
            answers_from, target = await asyncio.open_connection("127.0.0.1", proxy.target)
        except ConnectionRefusedError:
            self.reset()
            return
        self._writers.append(target)
        self._ends = {proxy.up: target, proxy.down: caller}
        for way in self._half_closed:  # while it was being connected
            self._end(way)
        async with asyncio.TaskGroup() as group:
            receiving, sending = [], []
            for way, source in ((proxy.up, self._reader), (proxy.down, answers_from)):
                pieces = Pieces(MOST_PIECES)
                receiving.append(group.create_task(self._receive(source, pieces, way)))
                sending.append(group.create_task(self._send(pieces, way)))
            await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            for task in (*receiving, *sending):
                task.cancel()

    async def _receive(self, reader: asyncio.StreamReader, pieces: Pieces, way: Way) -> None:
        loop = asyncio.get_running_loop()
        piece = b"not yet"
        while piece:
            try:
                piece = await reader.read(PIECE_BYTES)
            except ConnectionError:
                piece = b""
            await pieces.put((loop.time() + way.latency_s, piece))

    async def _send(self, pieces: Pieces, way: Way) -> None:
        """Until nothing more comes, or the connection is cut off."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not piece:
                    await way.flowing()
                    return
                for part in way.parts(piece):
                    await way.flowing()
                    going, ending = way.passing(part)
                    await self._write(way, going)
                    if ending is Ending.RESET:
                        self.reset()
                    if ending is not None:
                        return
                    if way.drip_s is not None:
                        await asyncio.sleep(way.drip_s)

    async def _write(self, way: Way, data: bytes) -> None:
        if data and way not in self._half_closed:
            self._ends[way].write(data)
            await self._ends[way].drain()

    def half_close(self, way: Way) -> None:
        if way not in self._half_closed:
            self._half_closed.add(way)
            self._end(way)

    def _end(self, way: Way) -> None:
        if way in self._ends and not self._ends[way].is_closing():
            self._ends[way].write_eof()

    def reset(self) -> None:
        for writer in self._writers:
            endpoint = writer.get_extra_info("socket")
            # Also of one that is closing, whose peer may never read; one that is closed has no socket.
            if endpoint is not None and endpoint.fileno() != -1:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
                writer.transport.abort()

    async def closed(self) -> None:
        """Wait until both sides are. Whoever waits may be cancelled, and others wait on."""
        for writer in self._writers:
            with suppress(ConnectionError):
                await asyncio.shield(writer.wait_closed())

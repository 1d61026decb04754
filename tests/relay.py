"""What if the network to Redis is slow, stalls or breaks? A relay that makes it so when a test says it."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self

PIECE_BYTES = 65536
NO_LINGERING = struct.pack("ii", 1, 0)  # close() then resets the connection

Pieces = asyncio.Queue[tuple[float, bytes]]  # each with the loop's time from which on it may go; b"" ends


class Relay:
    """`async with Relay(port) as relay` listens on a port of its own, and forwards to that one on loopback.

    latency_ms: what a round trip takes longer, half of it each way; it holds for what comes from then on.
    commands_flow, answers_flow: cleared by a stall.
    holding: set while a stall keeps something back.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.latency_ms = 0.0
        self.commands_flow = asyncio.Event()
        self.answers_flow = asyncio.Event()
        self.holding = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self.resume()

    @property
    def url(self) -> str:
        """Of the Redis behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(not task.done() for task in self._connections)

    def stall(self) -> None:
        """Forward nothing, either way. Connections stay open, and new ones are taken."""
        self.commands_flow.clear()
        self.answers_flow.clear()

    def stall_answers(self) -> None:
        """Forward commands, so that they take effect, but no answer."""
        self.answers_flow.clear()

    def resume(self) -> None:
        """Forward what has been kept back, and what comes."""
        self.commands_flow.set()
        self.answers_flow.set()
        self.holding.clear()

    async def cut(self) -> None:
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
        self._connections[asyncio.create_task(connection.run())] = connection

    async def __aenter__(self) -> Self:
        await self.admit()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        await self.cut()


class _Connection:
    """A caller's, and the one to the target that belongs to it."""

    def __init__(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._reader = reader
        self._writers = [writer]

    async def run(self) -> None:
        """Until either side has ended and what it sent before has gone on."""
        relay, (caller,) = self._relay, self._writers
        try:
            answers_from, target = await asyncio.open_connection("127.0.0.1", relay.target)
        except ConnectionRefusedError:
            self.reset()
            return
        self._writers.append(target)
        commands, answers = Pieces(), Pieces()
        try:
            async with asyncio.TaskGroup() as group:
                receiving = [
                    group.create_task(self._receive(self._reader, commands)),
                    group.create_task(self._receive(answers_from, answers)),
                ]
                sending = [
                    group.create_task(self._send(commands, target, relay.commands_flow)),
                    group.create_task(self._send(answers, caller, relay.answers_flow)),
                ]
                await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                for task in (*receiving, *sending):
                    task.cancel()
        finally:
            for writer in self._writers:
                writer.close()
        await self.closed()

    async def _receive(self, reader: asyncio.StreamReader, pieces: Pieces) -> None:
        loop = asyncio.get_running_loop()
        piece = b"not yet"
        while piece:
            try:
                piece = await reader.read(PIECE_BYTES)
            except ConnectionError:
                piece = b""
            pieces.put_nowait((loop.time() + self._relay.latency_ms / 2000, piece))

    async def _send(self, pieces: Pieces, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                while not flow.is_set():  # a stall that follows a resume at once holds as well
                    self._relay.holding.set()
                    await flow.wait()
                if not piece:
                    return
                writer.write(piece)
                await writer.drain()

    def reset(self) -> None:
        for writer in self._writers:
            if not writer.is_closing():
                endpoint = writer.get_extra_info("socket")
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
                writer.transport.abort()

    async def closed(self) -> None:
        """Wait until both sides are."""
        for writer in self._writers:
            with suppress(ConnectionError):
                await writer.wait_closed()

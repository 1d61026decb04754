"""One connection to Redis that carries one command at a time, at a fraction of a client library's cost.

redis-py's asyncio client spends about 200 microseconds of processor time a call, hiredis' reader and packer
on a bare protocol about 50. Every admission waits for such a call, so this one is our own; all other talk
with Redis goes through redis-py.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from gateway.stores.redis.target import Target

Word = str | float | int | bytes | memoryview  # of a command


class WireError(Exception):
    """The connection cannot be had, or is lost. The message says why, for the log."""


class Wire(asyncio.Protocol):
    """on_lost: is called once, when an open connection is lost otherwise than by close()."""

    def __init__(self) -> None:
        self.on_lost: Callable[[str], None] = lambda reason: None
        self._reader = hiredis.Reader()
        self._waiting: deque[Callable[[Any], None]] = deque()
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()

    @classmethod
    async def open(cls, target: Target, name: str) -> "Wire":
        """Connect and log in. Raises WireError, or OSError if nobody listens."""
        loop = asyncio.get_running_loop()
        wire = cls()
        if target.path:
            await loop.create_unix_connection(lambda: wire, target.path)
        else:
            host, port = await target.address()
            server_name = host if target.tls else None
            await loop.create_connection(
                lambda: wire, host, port, ssl=target.tls, server_hostname=server_name
            )
        try:
            await wire._log_in(target, name)
        except BaseException:
            wire.close()
            raise
        return wire

    async def _log_in(self, target: Target, name: str) -> None:
        commands: list[tuple[Word, ...]] = []
        if target.password:
            commands.append(("AUTH", *([target.username] if target.username else []), target.password))
        if target.database:
            commands.append(("SELECT", target.database))
        commands.append(("CLIENT", "SETNAME", name))
        for command in commands:
            answer = await self.ask(*command)
            if isinstance(answer, Exception):
                raise WireError(f"{command[0]!s}: {answer}")

    def send(self, command: tuple[Word, ...], on_answer: Callable[[Any], None]) -> None:
        """on_answer gets what Redis says: bytes, numbers, lists, or a hiredis.ReplyError.

        It is not called if the connection is lost first.
        """
        self._waiting.append(on_answer)
        if self._transport is not None:
            self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub: one item

    async def ask(self, *command: Word) -> Any:
        """Redis' answer, which may be a hiredis.ReplyError. Raises WireError if the connection is lost."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lost, self.on_lost = self.on_lost, lambda reason: _fail(answer, reason)
        try:
            self.send(command, lambda value: None if answer.done() else answer.set_result(value))
            if self._transport is None:
                raise WireError("connection lost")
            return await answer
        finally:
            self.on_lost = lost

    def close(self) -> None:
        """At once; what is under way is not waited for. on_lost is not called."""
        self.on_lost = lambda reason: None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def wait_closed(self) -> None:
        """After close(): until the socket is gone."""
        await self._gone.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                self._waiting.popleft()(answer)
        except (hiredis.ProtocolError, IndexError) as error:
            self._lose(f"what it says is no answer of Redis: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        self._lose(str(error) if error else "Redis closed the connection")

    def _lose(self, reason: str) -> None:
        on_lost = self.on_lost
        self.close()
        on_lost(reason)


def _fail(answer: asyncio.Future[Any], reason: str) -> None:
    if not answer.done():
        answer.set_exception(WireError(reason))

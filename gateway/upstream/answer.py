"""What does a caller of a worker hold? The head of its answer, the body as it comes, and the way to leave."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.errors import WorkerBroke
from gateway.upstream.connection import Connection, Sink


class Answer:
    """A lease on a connection, from the head of the answer on. `close()` ends it; so does leaving `with`.

    `headers` have names in lower case and no hop-by-hop headers; `length` is the content-length, in
    bytes, or None where the body tells its end otherwise. One task may read at a time.
    """

    __slots__ = ("_connection", "_exhausted", "_give_back", "headers", "length", "status")

    def __init__(self, connection: Connection, give_back: Callable[[Connection], None]) -> None:
        response = connection.response
        self.status: int = response.status
        self.headers: list[tuple[bytes, bytes]] = response.headers
        self.length: int | None = response.length
        self._connection: Connection | None = connection
        self._give_back = give_back
        self._exhausted = False

    @property
    def complete(self) -> bool:
        """The whole body has arrived, and read() has given it out."""
        return self._exhausted if self._connection is None else self._connection.exhausted

    async def read(self) -> bytes:
        """All that has arrived since the last read; waits if that is nothing; b"" at the end.

        Raises WorkerBroke if the answer ends too soon or is not HTTP, WorkerTimeout after `gap_s` of
        silence. If cancelled while it waits, the answer is closed.
        """
        while (data := self.take()) is None:
            assert self._connection is not None  # take() would have raised
            try:
                await self._connection.arrival()
            except asyncio.CancelledError:
                self.close()
                raise
        return data

    def take(self) -> bytes | None:
        """As read(), but None where that would wait."""
        if self._connection is not None:
            return self._connection.take()
        if self._exhausted:
            return b""
        raise WorkerBroke("read after the answer was closed")

    async def pour(self, sink: Sink) -> None:
        """Give `sink` what comes, as it comes, until it has enough or the answer ends.

        Raises as read(), and ends as that if it is cancelled.
        """
        connection = self._connection
        assert connection is not None
        try:
            connection.pour(sink)
            while connection.sink is not None and not connection.exhausted:
                await connection.arrival()
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            connection.sink = None

    def hold(self, is_held: bool) -> None:
        """Have the worker wait while nobody can take what it sends, or no longer."""
        if self._connection is not None:
            self._connection.hold(is_held)

    def close(self) -> None:
        """Let go of the connection. Unless the answer is complete, the worker sees its socket close."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            self._exhausted = connection.exhausted
            self._give_back(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

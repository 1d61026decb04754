"""Who keeps a connection open and says nothing? Clients that have asked once and may ask again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httptools

from benchmarks.footprint.connecting import connect_all
from benchmarks.footprint.streams import RequestFailed, request_head


class IdleConnection(asyncio.Protocol):
    """One request and its answer, and nothing after that."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[int] = loop.create_future()  # its status
        self.lost: asyncio.Future[None] = loop.create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None

    @property
    def is_lost(self) -> bool:
        return self.lost.done()

    def close(self) -> None:
        """Hang up, if it ever was connected."""
        if self._transport is not None:
            self._transport.abort()
        elif not self.lost.done():
            self.lost.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if not self.answered.done():
            self.answered.set_result(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if not self.answered.done():
            self.answered.set_result(0)


@asynccontextmanager
async def idle_connections(
    count: int, url: str, key: str, body: bytes
) -> AsyncIterator[list[IdleConnection]]:
    """So many, each with an answer of 200 behind it; all are closed with the block. Raises RequestFailed."""
    request = request_head(url, key, len(body)) + body
    connections = [IdleConnection(request) for _ in range(count)]
    try:
        await connect_all(connections, url)
        statuses = set(await asyncio.gather(*(connection.answered for connection in connections)))
        if others := statuses - {200}:
            raise RequestFailed(f"requests were answered with {sorted(others)} (0: not at all), not with 200")
        yield connections
    finally:
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.lost for connection in connections))

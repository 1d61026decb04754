"""The exchanges that are under way: so that they can be waited for, and stalled ones be found."""

import asyncio
from collections.abc import Callable

from gateway.errors import GatewayError
from gateway.exchange import Exchange


class UnderWay:
    """clock: the loop's, in seconds. stall_s: how long a caller may take nothing."""

    def __init__(self, clock: Callable[[], float], stall_s: float) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._exchanges: set[Exchange] = set()
        self._empty: asyncio.Event | None = None  # while somebody waits for that

    def __len__(self) -> int:
        return len(self._exchanges)

    def add(self, exchange: Exchange) -> None:
        self._exchanges.add(exchange)

    def discard(self, exchange: Exchange) -> None:
        self._exchanges.discard(exchange)
        if self._empty is not None and not self._exchanges:
            self._empty.set()
            self._empty = None

    async def empty(self) -> None:
        """Wait until none is left."""
        if self._exchanges:
            self._empty = self._empty or asyncio.Event()
            await self._empty.wait()

    def send_away(self, farewell: GatewayError) -> None:
        """End them all; each caller is told."""
        for exchange in list(self._exchanges):
            exchange.leave("draining", farewell)

    async def watch_for_stalls(self) -> None:
        """Cut off callers who stopped reading; runs until cancelled."""
        while True:
            await asyncio.sleep(self._stall_s / 4)
            self.cut_stalled()

    def cut_stalled(self) -> None:
        latest = self._clock() - self._stall_s
        for exchange in list(self._exchanges):
            if exchange.sending_since is not None and exchange.sending_since < latest:
                exchange.leave("client_stalled")

"""The exchanges that are under way: so that they can be waited for, and be looked after.

One look now and then at all of them, so that none has a timer of its own.
"""

import asyncio
from collections.abc import Callable
from math import inf

from gateway.errors import GatewayError, RequestTimeout
from gateway.exchange import Exchange

LOOKS = 4  # in the time of the shortest limit


class UnderWay:
    """clock: the loop's, in seconds.

    stall_s: how long a caller may take nothing. request_s: how long a request may take as a whole.
    heartbeat_s: how long a caller who waits for a stream may be sent nothing; 0: for ever.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        stall_s: float,
        request_s: float = inf,
        heartbeat_s: float = 0.0,
    ) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._request_s = request_s
        self._heartbeat_s = heartbeat_s
        self._period_s = min(stall_s, request_s, heartbeat_s or inf) / LOOKS
        self._quiet: dict[
            Exchange, tuple[int, float]
        ] = {}  # its events so far, and since when there is no other
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

    async def watch(self) -> None:
        """Look after them; runs until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            self.look()

    def look(self) -> None:
        """Cut off who takes too long, and let those who wait know that they are still served."""
        now = self._clock()
        for exchange in list(self._exchanges):
            if exchange.sending_since is not None and exchange.sending_since < now - self._stall_s:
                exchange.leave("client_stalled")
            elif exchange.trip.began < now - self._request_s:
                exchange.leave("request_timeout", RequestTimeout(self._request_s))
        if self._heartbeat_s:
            self._quiet = {
                one: self._attend(one, now) for one in list(self._exchanges) if _waits_for_stream(one)
            }

    def _attend(self, exchange: Exchange, now: float) -> tuple[int, float]:
        """How long has this caller been told nothing? A heartbeat, if that is too long."""
        progress = exchange.trip.progress
        events = progress.events if progress is not None else 0
        # What is new since the last look came right after that, for all we know.
        seen, since = self._quiet.get(exchange, (0, now - self._period_s))
        if events != seen:
            return events, now - self._period_s
        if now - since < self._heartbeat_s - self._period_s / 2:  # loops round, and a look may be early
            return events, since
        if progress is None or not progress.may_be_inside:
            exchange.beat()
        return events, now


def _waits_for_stream(exchange: Exchange) -> bool:
    """Whether a stream is what it asked for, and it was let in: its limits are known."""
    trip = exchange.trip
    return trip.quotas is not None and trip.job is not None and trip.job.stream

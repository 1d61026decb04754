"""Which connections wait to be used again, and for how long?"""

import asyncio

from gateway.upstream.connection import Connection


class IdlePool:
    """Parked connections of one worker; the latest parked is the first out, so that few stay in use.

    One timer for all closes those that were idle for `idle_s` or are older than `max_age_s`.
    """

    def __init__(self, *, idle_s: float, max_age_s: float) -> None:
        self._idle_s = idle_s
        self._max_age_s = max_age_s
        self._parked: list[Connection] = []  # in the order of parking
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float  # loop time

    def __len__(self) -> int:
        return len(self._parked)

    def take(self) -> Connection | None:
        """A connection that may be used, out of the pool; None if there is none."""
        if not self._parked:
            return None
        now = asyncio.get_running_loop().time()
        while self._parked:
            connection = self._parked.pop()
            if not connection.is_closing and now < self._expiry(connection):
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        """Park a connection that is fit for reuse."""
        connection.park()
        expiry = self._expiry(connection)
        self._parked.append(connection)
        if self._timer is None or expiry < self._timer_at:
            self._set_timer(expiry)

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has ended, if it is parked here."""
        if connection in self._parked:
            self._parked.remove(connection)

    def clear(self) -> None:
        """Forget all, and stop the timer."""
        self._parked.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expiry(self, connection: Connection) -> float:
        return min(connection.idle_since + self._idle_s, connection.connected_at + self._max_age_s)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        expired = [connection for connection in self._parked if self._expiry(connection) <= now]
        self._parked = [connection for connection in self._parked if self._expiry(connection) > now]
        for connection in expired:
            connection.abort()
        if self._parked:
            self._set_timer(min(map(self._expiry, self._parked)))

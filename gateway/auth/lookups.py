"""What does the directory say of a key? Asked as seldom as may be, and never believed for too long."""

from collections.abc import Callable

from gateway.auth.cache import NOBODY, RETRY_S, Cache, Confirmed, Entry
from gateway.auth.directory import Directory, Found
from gateway.auth.flights import Flights
from gateway.auth.gate import Gate
from gateway.errors import StoreUnavailable
from gateway.model import Caller


class Lookups:
    """The directory behind a cache.

    caller_of: whose a key is; None if its tenant does not exist.
    """

    def __init__(
        self,
        directory: Directory,
        caller_of: Callable[[Found], Caller | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._gate = Gate(directory)
        self._caller_of = caller_of
        self._monotonic = monotonic
        self._cache = Cache()
        self._flights: Flights[Entry] = Flights(self._look)

    def known(self, digest: bytes) -> Entry | None:
        """What need not be asked; None if only the directory can tell."""
        now = self._monotonic()
        entry = self._cache.get(digest)
        if entry is None:
            return NOBODY if self._cache.is_stranger(digest, now) else None
        if now >= entry.refresh_at:
            if now >= entry.good_until:
                return None
            # Or each request would ask, and log, where a bug fails what is asked.
            entry.refresh_at = min(now + RETRY_S, entry.good_until)
            self._flights.begin(digest)
        return entry

    async def find(self, digest: bytes) -> Entry:
        """Raises StoreUnavailable."""
        return self.known(digest) or await self._flights.share(digest)

    def forget(self, what: str) -> None:
        """ "key:<id>" or "tenant:<id>" has changed; "all": anything may have."""
        self._flights.outdate()
        if what == "all":
            self._cache.doubt()
        else:
            self._cache.forget(what)

    def revise(self) -> None:
        """`caller_of` answers otherwise than before."""
        self._flights.outdate()
        self._cache.revise(self._caller_of)

    async def aclose(self) -> None:
        await self._flights.aclose()

    async def _look(self, digest: bytes) -> Entry:
        asked_at = self._monotonic()
        try:
            found = await self._gate.find(digest, is_known=self._cache.get(digest) is not None)
        except StoreUnavailable:
            entry = self._cache.outlast(digest, self._monotonic())
            if entry is None:
                raise
            return entry
        caller = None if found is None else self._caller_of(found)
        if found is None or caller is None:
            if self._flights.is_current(digest):
                self._cache.deny(digest, asked_at)
            return NOBODY
        confirmed = Confirmed.at(asked_at, digest, found, caller)
        if self._flights.is_current(digest):
            self._cache.put(confirmed)
        return confirmed

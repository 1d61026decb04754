"""What has each tenant used? Requests that ended, summed in memory, added to a store every second.

Sums leave in numbered batches. One whose answer was lost is sent again under its number, and the store adds
each number once: a store that is slow or away costs nothing and doubles nothing. A process that is killed
takes with it what it counted since the store's last answer: about FLUSH_EVERY_S, while the store is well.
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Protocol

from gateway.errors import StoreUnavailable
from gateway.model import Trip
from gateway.usage.rows import Counts, Labels, Sums, UsageRow, rows_of

log = logging.getLogger(__name__)

FLUSH_EVERY_S = 1.0
LAST_FLUSH_S = 2.0  # at shutdown, for a store that does not answer at once
RETRY_S = 0.1  # between attempts at shutdown
CANCEL_AGAIN_S = 0.1
MOST_SETS = 100_000  # of labels, held while the store is away: 40 MB
MOST_SETS_A_BATCH = 250  # Redis does nothing else while it adds one: about a millisecond
DAY_S = 86_400
EPOCH = date(1970, 1, 1).toordinal()
NO_MODEL = "none"

_Key = tuple[float, str, str, str, str]  # days since 1970, then as in Labels


class UsageStore(Protocol):
    """Where sums are kept. Each method may raise StoreUnavailable."""

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        """Add a batch, as a whole or not at all.

        Of one process, a batch with the number of an earlier one, or a lower number, changes nothing.
        """
        ...

    async def sums(self, first: date, last: date, tenant: str | None = None) -> Sums:
        """Of these days, both included, for one tenant or for all."""
        ...


class Meter:
    """Use it as an async context manager: inside, it flushes by itself; at the end, once more."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._process = secrets.token_hex(8)
        self._sequence = 0
        self._sums: dict[_Key, list[int]] = {}
        self._batches: deque[tuple[int, Sums]] = deque()  # of the first it may be unknown whether it arrived
        self._flushing = asyncio.Lock()
        self._is_closing = False
        self._is_away = False
        self._is_full = False
        self.dropped = 0  # requests that were not counted, because MOST_SETS were held

    def record(self, trip: Trip) -> None:
        """Count a request that has ended. Its caller is known."""
        caller, job, charged = trip.caller, trip.job, trip.charged
        assert caller is not None, "nobody to charge"
        model = job.model if job is not None else NO_MODEL
        key = (trip.ended_at // DAY_S, caller.tenant.id, caller.key_id, model, trip.outcome)
        counts = self._sums.get(key)
        if counts is None:
            counts = self._open(key)
        counts[0] += 1
        if charged is not None:
            counts[1] += charged.prompt_tokens
            counts[2] += charged.cached_tokens
            counts[3] += charged.completion_tokens

    def _open(self, key: _Key) -> list[int]:
        """Sums for a new set of labels; where there is no room for it, sums that go nowhere."""
        counts = [0, 0, 0, 0]
        if len(self._sums) + sum(len(sums) for _, sums in self._batches) < MOST_SETS:
            self._sums[key] = counts
            return counts
        if not self._is_full:
            log.error(
                "%d sums of usage wait for the store, no more are begun: some requests go uncounted",
                MOST_SETS,
            )
        self._is_full = True
        self.dropped += 1
        return counts

    async def flush(self) -> bool:
        """Add all that was counted so far. False if the store is away; then it stays for the next time."""
        async with self._flushing:  # a second sender would take the first one's batches for its own
            # What waits goes first, under its numbers; meanwhile new sums gather in one place.
            if self._batches and not await self._send():
                return False
            self._cut()
            return await self._send()

    async def report(self, first: date, last: date, tenant: str | None = None) -> list[UsageRow]:
        """Of these UTC days, both included: what the store has, with all that this process counted.

        What other processes counted within FLUSH_EVERY_S may be missing. Raises StoreUnavailable.
        """
        await self.flush()
        return rows_of(await self._store.sums(first, last, tenant))

    def _cut(self) -> None:
        """Make batches of the sums."""
        sums, self._sums, self._is_full = self._sums, {}, False
        items = iter(sums.items())
        while batch := {_labels(key): counts for key, counts in itertools.islice(items, MOST_SETS_A_BATCH)}:
            self._sequence += 1
            self._batches.append((self._sequence, batch))

    async def _send(self) -> bool:
        while self._batches:
            sequence, sums = self._batches[0]
            try:
                await self._store.apply(self._process, sequence, sums)
            except StoreUnavailable as error:
                self._tell(away=True, why=error.detail or error.message)
                return False
            self._batches.popleft()
            self._tell(away=False)
        return True

    def _tell(self, *, away: bool, why: str = "") -> None:
        if away and not self._is_away:
            log.warning("usage cannot be added to the store, and is kept in memory: %s", why)
        elif self._is_away and not away:
            log.info("usage is added to the store again")
        self._is_away = away

    async def __aenter__(self) -> "Meter":
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        while not self._task.done():
            # Again and again: redis-py can lose a cancellation that arrives as a connection breaks.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_AGAIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S):
                while not await self.flush():  # noqa: ASYNC110 - the store tells nobody when it is back
                    await asyncio.sleep(RETRY_S)
        lost = sum(counts[0] for counts in self._held())
        if lost:
            log.error("the usage of %d requests may be lost: the store was away at shutdown", lost)

    def _held(self) -> Iterator[Counts]:
        yield from self._sums.values()
        for _, sums in self._batches:
            yield from sums.values()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._flush_for_ever(), name="usage")
        self._task.add_done_callback(self._begin_anew)

    def _begin_anew(self, ended: asyncio.Task[None]) -> None:
        """Usage is added again, whatever bug ended the task."""
        if not self._is_closing:
            log.error("adding usage to the store failed; it begins anew", exc_info=ended.exception())
            self._begin()

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()


def _labels(key: _Key) -> Labels:
    day, tenant, key_id, model, outcome = key
    return _iso(day), tenant, key_id, model, outcome


@lru_cache(maxsize=4)
def _iso(days: float) -> str:
    return date.fromordinal(EPOCH + int(days)).isoformat()

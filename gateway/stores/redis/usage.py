"""Where are the sums of usage of all processes? A hash a UTC day, a field for each sum."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Literal

import msgspec
from redis import RedisError
from redis.asyncio import Redis

from gateway.errors import StoreUnavailable

log = logging.getLogger(__name__)

Labels = tuple[str, str, str, str, str]  # UTC day as "2026-11-30", tenant, key id, model, outcome
Sums = Mapping[Labels, Sequence[int]]  # amounts in the order of MEASURES

DAY_S = 86_400
# How long the number of a process' last batch is kept: an answer may be missing for so long before the same
# batch, sent again, counts twice.
NUMBER_KEPT_S = 7 * DAY_S
FIELDS_A_READ = 1_000  # Redis does nothing else while it reads them
MEASURES = ("requests", "prompt", "cached", "completion")


class _Field(msgspec.Struct, array_like=True, frozen=True):
    """The name of a field, as JSON: no label, whatever is in it, can be taken for two."""

    tenant: str
    key: str
    model: str
    outcome: str
    measure: Literal["requests", "prompt", "cached", "completion"]


class RedisUsage:
    """A UsageStore. Days expire `retention_days` after the last that was added to them. `clock`: seconds
    since 1970."""

    def __init__(
        self, client: Redis, prefix: str, retention_days: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._prefix = f"{prefix}:usage"
        self._kept = timedelta(days=retention_days)
        self._clock = clock
        script = files("gateway.stores.redis").joinpath("lua", "usage.lua").read_text(encoding="utf-8")
        self._add = client.register_script(script)

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        """Add a batch, as a whole or not at all, unless it was added before. Raises StoreUnavailable."""
        days = sorted({labels[0] for labels in sums})
        keys = [f"{self._prefix}:applied:{process}", *map(self._key, days)]
        place = {
            day: index for index, day in enumerate(days, 2)
        }  # Lua counts from 1, and the number is first
        amounts = [
            (place[labels[0]], _beginning(labels), *map(str, counts)) for labels, counts in sums.items()
        ]
        batch = (sequence, NUMBER_KEPT_S, self._kept.days * DAY_S, amounts)
        with _translated():
            refused = await self._add(keys=keys, args=[msgspec.msgpack.encode(batch)])
        if refused:
            log.error("%d sums of usage could not be added: Redis holds no numbers in their place", refused)

    async def sums(self, first: date, last: date, tenant: str | None = None) -> Sums:
        """Of these days, both included. Raises StoreUnavailable."""
        found: dict[Labels, list[int]] = {}
        with _translated():
            for day in self._days(first, last):
                async for field, amount in self._fields(day):
                    if tenant is None or field.tenant == tenant:
                        labels = (day, field.tenant, field.key, field.model, field.outcome)
                        counts = found.setdefault(labels, [0] * len(MEASURES))
                        counts[MEASURES.index(field.measure)] = amount
        return found

    def _days(self, first: date, last: date) -> Iterator[str]:
        """Those of them that Redis can have. Other processes' clocks may be ahead."""
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        day, last = max(first, today - self._kept), min(last, today + timedelta(days=1))
        while day <= last:
            yield day.isoformat()
            day += timedelta(days=1)

    async def _fields(self, day: str) -> AsyncIterator[tuple[_Field, int]]:
        """Some may come twice, with amounts of different moments."""
        unreadable = 0
        async for name, amount in self._client.hscan_iter(self._key(day), count=FIELDS_A_READ):
            try:
                read = msgspec.json.decode(name, type=_Field), int(amount)
            except ValueError:  # also what msgspec raises
                unreadable += 1
            else:
                yield read
        if unreadable:
            log.warning("%d sums of usage in %s cannot be read, and are left out", unreadable, self._key(day))

    def _key(self, day: str) -> str:
        return f"{self._prefix}:{day}"


def _beginning(labels: Labels) -> str:
    """Of a field's name, up to the measure."""
    return msgspec.json.encode(labels[1:]).decode().removesuffix("]")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise StoreUnavailable(
            "The store of this gateway does not answer. Try again.",
            retry_after_s=1,
            detail=f"{type(error).__name__}: {error}",
        ) from error

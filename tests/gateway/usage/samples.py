"""What do tests of usage start from? Trips that ended, stores, and a store that is sometimes away."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gateway.errors import StoreUnavailable
from gateway.model import Caller, Tenant, Trip, Usage
from gateway.usage import MemoryUsage
from gateway.usage.rows import Labels, Sums
from tests.gateway.test_model import SALT, job, trip

DAY = "2026-11-30"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
USED = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=64)


def ended(tenant: str = "acme", key: str = "acme-1", model: str | None = "small", **fields: Any) -> Trip:
    """A request that ended well at noon and used USED; `model` None: none was known yet."""
    caller = Caller(Tenant(tenant), key, SALT)
    of_model = job(caller.tenant, model=model) if model else None
    plain = {"caller": caller, "job": of_model, "charged": USED, "outcome": "ok", "ended_at": NOON}
    return trip(**(plain | fields))


def labels(tenant: str = "acme", *, day: str = DAY, key: str = "acme-1", outcome: str = "ok") -> Labels:
    return (day, tenant, key, "small", outcome)


class Shelf(MemoryUsage):
    """A store that goes wrong as told: each call does the next of `course`, and then all is well.

    "away": nothing arrives. "lost": the batch is added, its answer is not heard. "ok".
    """

    def __init__(self, course: Iterable[str] = ()) -> None:
        super().__init__(retention_days=400)
        self._course = iter(course)
        self.calls: list[tuple[str, int, Sums]] = []

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        self.calls.append((process, sequence, sums))
        happens = next(self._course, "ok")
        if happens != "away":
            await super().apply(process, sequence, sums)
        if happens != "ok":
            raise StoreUnavailable("Try again.", retry_after_s=1, detail="it is not there")

    @property
    def numbers(self) -> list[int]:
        """Of all batches that were sent."""
        return [sequence for _, sequence, _ in self.calls]

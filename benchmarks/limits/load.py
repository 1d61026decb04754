"""What is asked of a store, how fast, and what did it take? As fast as it goes, or at a given rate."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.burst.summary import Percentiles, percentiles
from gateway.limits import LimitStore
from gateway.model import Tenant

RESERVED_TOKENS = 10
USED_TOKENS = 6
TICK_S = 0.001  # what the timers of the event loop can tell apart

_numbers = itertools.count()


class LimitReached(Exception):
    """A store refused, so that what was measured is no admission."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many pairs of an admission and its settlement took."""

    pairs: int
    wall_s: float
    cpu_s: float  # of this process

    @property
    def pairs_per_s(self) -> float:
        return self.pairs / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Of one pair."""
        return self.cpu_s / self.pairs * 1e6


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What it took, and how long admissions had to wait for the store."""

    cost: Cost
    takes_s: list[float]

    @property
    def p50_ms(self) -> float:
        return self._percentiles().p50 * 1e3

    @property
    def p99_ms(self) -> float:
        return self._percentiles().p99 * 1e3

    def _percentiles(self) -> Percentiles:
        found = percentiles(self.takes_s)
        assert found is not None, "the first request comes at once"
        return found


async def saturate(store: LimitStore, tenants: Sequence[Tenant], callers: int, seconds: float) -> Cost:
    """So many callers, each of which asks again as soon as it is done. Raises LimitReached."""
    pairs = 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()

    async def ask_on(tenant: Tenant) -> None:
        nonlocal pairs
        while time.perf_counter() - began_s < seconds:
            await _pair(store, tenant)
            pairs += 1

    async with asyncio.TaskGroup() as group:
        for number in range(callers):
            group.create_task(ask_on(tenants[number % len(tenants)]))
    return Cost(pairs, time.perf_counter() - began_s, time.process_time() - began_cpu_s)


async def arrive(
    store: LimitStore, tenants: Sequence[Tenant], per_s: float, seconds: float, seed: int = 0
) -> Arrivals:
    """Requests that come at random (Poisson), whether or not others are done. Raises LimitReached.

    Those of one tick come together, so at high rates they come in small crowds.
    """
    chance = random.Random(seed)
    takes_s: list[float] = []
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    due_s = 0.0
    async with asyncio.TaskGroup() as group:
        while due_s < seconds:
            await asyncio.sleep(TICK_S)
            while due_s < min(time.perf_counter() - began_s, seconds):
                tenant = chance.choice(tenants)
                group.create_task(_pair(store, tenant, takes_s))
                due_s += chance.expovariate(per_s)
    cost = Cost(len(takes_s), time.perf_counter() - began_s, time.process_time() - began_cpu_s)
    return Arrivals(cost, takes_s)


async def _pair(store: LimitStore, tenant: Tenant, takes_s: list[float] | None = None) -> None:
    lease = f"request-{next(_numbers)}"
    asked_s = time.perf_counter()
    verdict = await store.take(lease, tenant, RESERVED_TOKENS)
    if takes_s is not None:
        takes_s.append(time.perf_counter() - asked_s)
    if verdict.refused:
        raise LimitReached(f"the store refused: {verdict.refused}")
    await asyncio.sleep(0)  # as a request waits for its worker: others get their turn
    store.settle(lease, tenant, RESERVED_TOKENS, USED_TOKENS)

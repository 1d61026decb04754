"""Does the load ask for what it says it does: pairs, all of them whole, and as many as it counts?"""

import asyncio
import time
from collections import Counter

import pytest

from benchmarks.limits.load import USED_TOKENS, Arrivals, Cost, LimitReached, arrive, saturate
from gateway.model import Quotas, Tenant, Verdict

TENANTS = [Tenant("a"), Tenant("b"), Tenant("c")]


class Ledger:
    """A store that writes down who asked. take() waits until `together` are waiting."""

    def __init__(self, *, refused: str = "", together: int = 0) -> None:
        self.taken: list[tuple[str, str, int]] = []
        self.settled: list[tuple[str, str, int, int | None]] = []
        self.waiting = 0
        self._refused = refused
        self._together = together
        self._all_there = asyncio.Event()

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        self.taken.append((lease, tenant.id, tokens))
        self.waiting += 1
        if self.waiting >= self._together:
            self._all_there.set()
        await self._all_there.wait()
        return Verdict(Quotas(), self._refused)

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        self.settled.append((lease, tenant.id, reserved, used))

    async def look(self, tenant: Tenant) -> Quotas:
        raise NotImplementedError


def assert_whole(store: Ledger, cost: Cost) -> None:
    """Each lease was taken once and settled once, for the same tenant, and is counted."""
    assert cost.pairs == len(store.taken) == len({lease for lease, _, _ in store.taken}) > 0
    settled = [(lease, tenant, reserved, USED_TOKENS) for lease, tenant, reserved in store.taken]
    assert sorted(store.settled) == sorted(settled)


async def test_callers_ask_again_and_again_for_all_tenants_in_turn() -> None:
    store = Ledger()

    cost = await saturate(store, TENANTS, callers=7, seconds=0.05)

    assert_whole(store, cost)
    assert [tenant for _, tenant, _ in store.taken[:7]] == ["a", "b", "c", "a", "b", "c", "a"]
    assert cost.pairs > 7
    assert cost.wall_s >= 0.05


async def test_all_callers_ask_at_once() -> None:
    store = Ledger(together=20)
    async with asyncio.timeout(10):
        cost = await saturate(store, TENANTS, callers=20, seconds=0.01)
    assert_whole(store, cost)


async def test_between_admission_and_settlement_others_get_their_turn() -> None:
    store = Ledger()
    await saturate(store, TENANTS, callers=2, seconds=0.01)
    assert store.settled[0][0] == store.taken[0][0]
    assert store.taken[1][1] == "b"


async def test_requests_arrive_at_the_rate_whether_or_not_others_are_done() -> None:
    store = Ledger(together=150)
    async with asyncio.timeout(10):
        arrivals = await arrive(store, TENANTS, per_s=1000, seconds=0.2)

    assert_whole(store, arrivals.cost)
    assert 150 < arrivals.cost.pairs < 250
    assert Counter(tenant for _, tenant, _ in store.taken).keys() == {"a", "b", "c"}
    assert len(arrivals.takes_s) == arrivals.cost.pairs
    assert max(arrivals.takes_s) > 0


async def test_all_stores_get_the_same_arrivals() -> None:
    stores = [Ledger(), Ledger()]
    for store in stores:
        await arrive(store, TENANTS, per_s=1000, seconds=0.05)
    tenants = [[tenant for _, tenant, _ in store.taken] for store in stores]
    assert tenants[0] == tenants[1]


async def test_one_request_is_enough() -> None:
    arrivals = await arrive(Ledger(), TENANTS, per_s=0.001, seconds=0.01)
    assert (arrivals.cost.pairs, arrivals.p50_ms) == (1, arrivals.p99_ms)


async def test_the_wait_is_that_for_the_answer() -> None:
    class Slow(Ledger):
        async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
            await asyncio.sleep(0.05)
            return await super().take(lease, tenant, tokens)

    arrivals = await arrive(Slow(), TENANTS, per_s=100, seconds=0.05)
    assert arrivals.p50_ms > 40  # at least: a timer may be some milliseconds early


async def test_a_refusal_is_no_measurement() -> None:
    store = Ledger(refused="tokens")
    with pytest.raises(ExceptionGroup) as saturated:
        await saturate(store, TENANTS, callers=2, seconds=60)
    with pytest.raises(ExceptionGroup) as arrived:
        await arrive(store, TENANTS, per_s=100, seconds=60)
    for caught in (saturated, arrived):
        assert caught.group_contains(LimitReached, match="the store refused: tokens")


async def test_the_time_of_this_processor_is_what_a_pair_costs() -> None:
    class Busy(Ledger):
        async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
            ends_s = time.process_time() + 0.001
            while time.process_time() < ends_s:
                pass
            return await super().take(lease, tenant, tokens)

    for cost in (
        await saturate(Busy(), TENANTS, callers=1, seconds=0.05),
        (await arrive(Busy(), TENANTS, per_s=100, seconds=0.05)).cost,
    ):
        assert cost.cpu_us >= 1000


def test_figures_are_of_one_pair() -> None:
    cost = Cost(pairs=1000, wall_s=0.5, cpu_s=0.01)
    arrivals = Arrivals(cost, [0.001] * 98 + [0.004, 0.005])

    assert cost.pairs_per_s == 2000
    assert cost.cpu_us == pytest.approx(10)
    assert arrivals.p50_ms == pytest.approx(1)
    assert 3.9 < arrivals.p99_ms < 5

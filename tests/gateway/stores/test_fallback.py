"""While the shared store is away: does the policy hold, and is nothing spent twice when it is back?"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from gateway.errors import StoreUnavailable
from gateway.model import Quota, Quotas, Tenant, Verdict
from gateway.stores.fallback import FallbackLimits
from gateway.stores.memory import MemoryStore
from tests.gateway.test_model import Clock

Policy = Literal["local", "closed", "open"]
ACME = Tenant("acme", requests_per_minute=100, tokens_per_minute=1000, max_concurrency=10)


class Shared:
    """A shared store that can be away. Another process than ours would use `counts`, too."""

    def __init__(self, clock: Clock) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda reason: None
        self.is_up = True
        self.fails_at_once = self.comes_back_at_once = False
        self.processes = 1
        self.counts = MemoryStore(clock)
        self.held: dict[str, Tenant] = {}
        self.imposed: list[tuple[str, list[float]]] = []

    def go(self) -> None:
        self.is_up = False
        self.on_down("no answer within 250 ms")

    def come(self) -> None:
        self.is_up = True
        self.on_up()

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        if self.fails_at_once:
            self.go()
            if self.comes_back_at_once:
                self.come()
            raise StoreUnavailable
        assert self.is_up, "nobody asks a store that is away"
        verdict = await self.counts.take(lease, tenant, tokens)
        if not verdict.refused:
            self.held[lease] = tenant
        return verdict

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        self.held.pop(lease, None)
        self.counts.settle(lease, tenant, reserved, used)

    async def look(self, tenant: Tenant) -> Quotas:
        if self.fails_at_once:
            raise StoreUnavailable
        return await self.counts.look(tenant)

    def last_known(self, tenant: Tenant) -> tuple[list[float], list[str]]:
        left = [0.0] * 4
        if tenant.requests_per_minute and tenant.tokens_per_minute:
            requests, tokens, *_ = self.counts.taken(tenant)
            left = [requests * 60 / tenant.requests_per_minute, tokens * 60 / tenant.tokens_per_minute, 0, 0]
        return left, [lease for lease, of in self.held.items() if of.id == tenant.id]

    def impose(self, lease: str, tenant: Tenant, amounts: Sequence[float]) -> None:
        self.imposed.append((lease, list(amounts)))


class Rig:
    def __init__(self, policy: Policy = "local") -> None:
        self.clock = Clock()
        self.shared = Shared(self.clock)
        self.limits = FallbackLimits(self.shared, policy, self.clock)
        self.count = 0

    async def take(self, tenant: Tenant = ACME, tokens: int = 10) -> tuple[str, Verdict]:
        self.count += 1
        lease = f"r{self.count}"
        return lease, await self.limits.take(lease, tenant, tokens)

    async def granted(self, most: int, tenant: Tenant = ACME, tokens: int = 10) -> int:
        """How many of so many are."""
        return [(await self.take(tenant, tokens))[1].refused for _ in range(most)].count("")

    async def used(self, times: int, tenant: Tenant = ACME, tokens: int = 10) -> None:
        """So many requests come and go."""
        for _ in range(times):
            lease, verdict = await self.take(tenant, tokens)
            assert verdict.refused == ""
            self.limits.settle(lease, tenant, tokens, tokens)


async def test_while_it_is_there_the_shared_store_decides() -> None:
    rig = Rig()
    _, verdict = await rig.take(Tenant("acme", requests_per_minute=60))
    assert verdict.quotas == Quotas(Quota(60, 59, 1.0))
    assert (await rig.limits.look(ACME)).degraded == ""
    assert not rig.limits.is_degraded


@pytest.mark.parametrize(("processes", "granted"), [(1, 8), (2, 4), (3, 2), (100, 1)])
async def test_each_process_keeps_its_part_of_a_limit(processes: int, granted: int) -> None:
    rig = Rig()
    rig.shared.processes = processes
    rig.shared.go()
    assert await rig.granted(20, Tenant("acme", max_concurrency=10)) == granted
    assert await rig.granted(20, Tenant("globex", requests_per_minute=10)) == granted
    assert await rig.granted(20, Tenant("initech", tokens_per_day=10), tokens=1) == granted


async def test_what_is_told_is_what_holds() -> None:
    rig = Rig()
    rig.shared.go()
    assert rig.limits.is_degraded
    _, verdict = await rig.take()
    assert verdict.quotas == Quotas(Quota(80, 79, 0.75), Quota(800, 790, 0.75), "local")
    assert await rig.limits.look(ACME) == verdict.quotas
    rig.shared.go()
    await rig.granted(100)
    _, refused = await rig.take()
    assert (refused.refused, refused.quotas.degraded) == ("concurrency", "local")


async def test_a_tenant_that_has_used_its_limit_up_has_not_got_it_anew() -> None:
    rig = Rig()
    tenant = Tenant("acme", requests_per_minute=100, tokens_per_minute=1000)
    await rig.used(100, tenant, 1)
    rig.shared.go()
    assert (await rig.take(tenant))[1].refused == "requests"
    rig.clock.now += 30
    assert await rig.granted(100, tenant, 1) == 40  # half of 0.8


async def test_slots_that_are_held_count_and_are_given_back() -> None:
    rig = Rig()
    tenant = Tenant("acme", max_concurrency=10)
    leases = [(await rig.take(tenant))[0] for _ in range(8)]
    rig.shared.go()
    assert (await rig.take(tenant))[1].refused == "concurrency"
    rig.limits.settle(leases[0], tenant, 10, 10)
    assert leases[0] not in rig.shared.held
    assert (await rig.take(tenant))[1].refused == ""


async def test_closed_refuses_who_has_limits_and_nobody_else() -> None:
    rig = Rig("closed")
    rig.shared.go()
    with pytest.raises(StoreUnavailable):
        await rig.take()
    assert (await rig.take(Tenant("free")))[1].refused == ""
    assert await rig.limits.look(ACME) == Quotas(degraded="closed")


async def test_open_refuses_nobody_and_charges_later() -> None:
    rig = Rig("open")
    tenant = Tenant("acme", requests_per_minute=10, tokens_per_day=50, max_concurrency=1)
    rig.shared.go()
    await rig.used(20, tenant)
    running, verdict = await rig.take(tenant)
    assert verdict.quotas == Quotas(degraded="open")
    rig.shared.come()
    # No more than the whole limit: of a debt without end nobody would ever come out.
    assert rig.shared.imposed == [(running, [1, 10, 1, 10]), ("", [10, 0, 0, 50])]


async def test_who_asks_as_it_goes_away_is_answered_by_the_policy() -> None:
    rig = Rig()
    rig.shared.fails_at_once = True
    assert (await rig.take())[1].quotas.degraded == "local"
    rig = Rig()
    rig.shared.fails_at_once = True
    assert (await rig.limits.look(ACME)).degraded == "local"


async def test_a_store_that_is_back_before_the_policy_has_answered_hears_of_that_answer() -> None:
    rig = Rig()
    rig.shared.fails_at_once = rig.shared.comes_back_at_once = True
    lease, verdict = await rig.take(tokens=50)
    assert verdict.refused == ""
    assert rig.shared.imposed == [(lease, [1, 50, 1, 50])]
    rig.limits.settle(lease, ACME, 50, 7)
    rig.shared.imposed.clear()
    rig.shared.go()
    rig.shared.come()
    assert rig.shared.imposed == [], "the shared store has settled it"


async def test_what_was_told_in_one_outage_is_not_taken_for_the_next() -> None:
    rig = Rig()
    tenant = Tenant("acme", requests_per_minute=100, tokens_per_minute=1000)
    rig.shared.fails_at_once = rig.shared.comes_back_at_once = True
    await rig.limits.look(tenant)
    rig.shared.fails_at_once = False
    await rig.used(100, tenant, 1)
    rig.shared.go()
    assert (await rig.take(tenant))[1].refused == "requests"


async def test_a_tenant_without_limits_hears_nothing_of_it() -> None:
    rig = Rig("closed")
    rig.shared.go()
    assert await rig.limits.look(Tenant("free")) == Quotas()


async def test_when_it_is_back_it_hears_of_what_ran_and_what_runs() -> None:
    rig = Rig()
    rig.shared.go()
    await rig.used(3, tokens=20)
    running, _ = await rig.take(tokens=50)
    lease, _ = await rig.take(tokens=500)
    rig.limits.settle(lease, ACME, 500, None)  # no worker began
    rig.shared.come()
    assert rig.shared.imposed == [(running, [1, 50, 1, 50]), ("", [3, 60, 0, 0])]
    assert not rig.limits.is_degraded
    rig.limits.settle(running, ACME, 50, 7)  # the shared store settles it now
    rig.shared.imposed.clear()
    rig.shared.go()
    rig.shared.come()
    assert rig.shared.imposed == []


async def test_what_has_come_back_meanwhile_is_not_owed() -> None:
    rig = Rig()
    tenant = Tenant("acme", requests_per_minute=100, requests_per_day=1000)
    rig.shared.go()
    await rig.used(40, tenant)
    rig.clock.now += 15  # of 80 a minute, 20
    rig.shared.come()
    [(_, amounts)] = rig.shared.imposed
    assert amounts == pytest.approx([20, 0, 40 - 15 * 800 / 86400, 0])


async def test_a_tenant_whose_limits_change_meanwhile_has_the_new_ones() -> None:
    rig = Rig()
    rig.shared.go()
    assert await rig.granted(5, Tenant("acme", max_concurrency=2)) == 1
    assert await rig.granted(50, Tenant("acme", max_concurrency=20)) == 15


async def test_each_change_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    rig.shared.come()  # at the start
    rig.shared.go()
    rig.shared.go()
    await rig.used(5)
    rig.clock.now += 12.34
    rig.shared.come()
    assert [record.getMessage() for record in caplog.records] == [
        'Redis is away (no answer within 250 ms): store.on_failure = "local" holds. '
        "See that the Redis of store.url runs",
        "Redis answers again after 12.3 s: limits are shared",
    ]


@pytest.mark.parametrize("policy", ["local", "open"])
async def test_a_lease_is_settled_once(policy: Any) -> None:
    rig = Rig(policy)
    rig.shared.go()
    lease, _ = await rig.take(tokens=50)
    rig.limits.settle(lease, ACME, 50, 50)
    rig.limits.settle(lease, ACME, 50, 50)
    rig.shared.come()
    [(_, amounts)] = rig.shared.imposed
    assert amounts[:2] == [1, 50]

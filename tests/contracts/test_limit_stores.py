"""Does every store keep the promises of `LimitStore`? One suite for all of them.

The reference is a bucket of exact fractions that is full with a minute's worth and fills continuously.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits import LimitStore
from gateway.model import Quota, Quotas, Tenant
from gateway.stores.memory import MemoryStore
from tests.gateway.test_model import Clock

MakeStore = Callable[[Clock], LimitStore]
STORES: dict[str, MakeStore] = {"memory": MemoryStore}

TOLERANCE_S = 0.001  # a wait may be told that much too long or too short

every_store = pytest.mark.parametrize("make", STORES.values(), ids=STORES.keys())

# Waits and refills at these limits are whole multiples of 1/64 s, so floats and fractions agree.
LIMITS = st.sampled_from([None, 1, 15, 60, 240])


class Bucket:
    """What one limit must do."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.level = Fraction(limit or 0)

    def refill(self, elapsed_s: Fraction) -> None:
        if self.limit is not None:
            self.level = min(self.level + elapsed_s * self.limit / 60, Fraction(self.limit))

    def holds(self, cost: int) -> bool:
        return self.limit is None or self.level >= cost

    def take(self, cost: int) -> None:
        if self.limit is not None:
            self.level = min(self.level - cost, Fraction(self.limit))

    def check(self, quota: Quota | None) -> None:
        if self.limit is None:
            assert quota is None
            return
        assert quota is not None
        missing = self.limit - self.level
        assert quota.limit == self.limit
        assert quota.remaining == max(self.level.__floor__(), 0)
        assert quota.reset_s == pytest.approx(float(missing * 60 / self.limit), abs=1e-6)


class Reference:
    """What a whole store must do, for one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self.requests = Bucket(tenant.requests_per_minute)
        self.tokens = Bucket(tenant.tokens_per_minute)
        self.slots = tenant.max_concurrency
        self.leases: dict[str, int] = {}

    def refill(self, elapsed_s: Fraction) -> None:
        self.requests.refill(elapsed_s)
        self.tokens.refill(elapsed_s)

    def refuses(self, tokens: int) -> set[str]:
        """The limits that stand against it."""
        against = set()
        if not self.requests.holds(1):
            against.add("requests")
        if not self.tokens.holds(tokens):
            against.add("tokens")
        if self.slots is not None and len(self.leases) >= self.slots:
            against.add("concurrency")
        return against

    def take(self, lease: str, tokens: int) -> None:
        self.requests.take(1)
        self.tokens.take(tokens)
        self.leases[lease] = tokens

    def settle(self, lease: str, used: int | None) -> None:
        reserved = self.leases.pop(lease, None)
        if reserved is None:
            return
        self.tokens.take((used or 0) - reserved)
        if used is None:
            self.requests.take(-1)


tenants = st.builds(
    Tenant,
    id=st.just("acme"),
    requests_per_minute=LIMITS,
    tokens_per_minute=LIMITS,
    max_concurrency=st.sampled_from([None, 1, 3]),
)
steps = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 250)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.none() | st.integers(0, 400)),
    st.tuples(st.just("pass"), st.integers(1, 64 * 90)),  # in 1/64 s
)


@every_store
@settings(deadline=None)
@given(tenant=tenants, script=st.lists(steps, max_size=25))
async def test_a_store_grants_exactly_what_the_limits_hold(
    make: MakeStore, tenant: Tenant, script: list[Any]
) -> None:
    clock, reference = Clock(), Reference(tenant)
    store = make(clock)
    taken: list[tuple[str, int]] = []
    for step, *numbers in script:
        match step, numbers:
            case "pass", [ticks]:
                clock.now += ticks / 64
                reference.refill(Fraction(ticks, 64))
            case "take", [tokens]:
                lease = f"r{len(taken)}"
                taken.append((lease, tokens))
                verdict = await store.take(lease, tenant, tokens)
                against = reference.refuses(tokens)
                assert verdict.refused in against if against else verdict.refused == ""
                if not against:
                    reference.take(lease, tokens)
                reference.requests.check(verdict.quotas.requests)
                reference.tokens.check(verdict.quotas.tokens)
            case "settle", [index, used] if index < len(taken):
                lease, tokens = taken[index]
                store.settle(lease, tenant, tokens, used)
                reference.settle(lease, used)
    quotas = await store.look(tenant)
    reference.requests.check(quotas.requests)
    reference.tokens.check(quotas.tokens)


@every_store
@settings(deadline=None)
@given(
    limit=st.sampled_from([1, 7, 60, 600, 200_000]),
    arrivals=st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 90_000)), min_size=1, max_size=30),
)
async def test_no_span_of_time_grants_more_than_a_full_limit_and_what_came_back_in_it(
    make: MakeStore, limit: int, arrivals: list[tuple[int, int]]
) -> None:
    clock = Clock()
    store, tenant = make(clock), Tenant("acme", tokens_per_minute=limit)
    granted: list[tuple[float, int]] = []
    for index, (pause_ms, cost) in enumerate(arrivals):
        clock.now += pause_ms / 1000
        if not (await store.take(f"r{index}", tenant, cost)).refused:
            granted.append((clock.now, cost))
    for first, (began, _) in enumerate(granted):
        total = 0
        for at, cost in granted[first:]:
            total += cost
            assert total <= limit * (1 + (at - began) / 60) + 1e-3


@every_store
@settings(deadline=None)
@given(
    requests=st.sampled_from([None, 1, 7, 60, 1000]),
    tokens=st.sampled_from([None, 100, 777, 100_000]),
    script=st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 100), st.booleans()), max_size=20),
    cost=st.integers(1, 100),
)
async def test_the_same_is_granted_after_the_wait_that_was_told_and_not_before(
    make: MakeStore,
    requests: int | None,
    tokens: int | None,
    script: list[tuple[int, int, bool]],
    cost: int,
) -> None:
    tenant = Tenant("acme", requests_per_minute=requests, tokens_per_minute=tokens)

    async def after(wait_s: float) -> tuple[str, float]:
        """What `cost` is answered so long after the script, in a store that has seen nothing else."""
        clock = Clock()
        store = make(clock)
        for index, (pause_ms, amount, overrun) in enumerate(script):
            clock.now += pause_ms / 1000
            await store.take(f"r{index}", tenant, amount)
            store.settle(f"r{index}", tenant, amount, amount * 3 if overrun else amount)
        clock.now += wait_s
        verdict = await store.take("last", tenant, cost)
        return verdict.refused, verdict.retry_after_s

    refused, retry_after_s = await after(0)
    if not refused:
        assert retry_after_s == 0
        return
    assert retry_after_s > 0
    assert (await after(retry_after_s + TOLERANCE_S))[0] == ""
    if retry_after_s > TOLERANCE_S:
        assert (await after(retry_after_s - TOLERANCE_S))[0] != ""


@every_store
async def test_a_refusal_takes_nothing_of_any_limit(make: MakeStore) -> None:
    clock = Clock()
    store = make(clock)
    tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60, max_concurrency=1)
    await store.take("held", tenant, 10)
    before = await store.look(tenant)
    for lease, cost in (("too-many-tokens", 51), ("no-slot", 1)):
        verdict = await store.take(lease, tenant, cost)
        assert verdict.refused
        assert verdict.quotas == before == await store.look(tenant)
    store.settle("held", tenant, 10, 10)
    assert (await store.take("next", tenant, 50)).refused == ""  # the refused hold no slot


@every_store
async def test_settling_a_lease_that_was_refused_gives_nothing(make: MakeStore) -> None:
    store, tenant = make(Clock()), Tenant("acme", tokens_per_minute=60)
    await store.take("held", tenant, 60)
    await store.take("refused", tenant, 30)
    store.settle("refused", tenant, 30, None)
    assert (await store.look(tenant)).tokens == Quota(60, 0, 60.0)


@every_store
async def test_a_second_settlement_does_nothing(make: MakeStore) -> None:
    store, tenant = make(Clock()), Tenant("acme", tokens_per_minute=60, max_concurrency=2)
    await store.take("one", tenant, 60)
    store.settle("one", tenant, 60, 40)
    store.settle("one", tenant, 60, None)
    assert (await store.look(tenant)).tokens == Quota(60, 20, 40.0)


@every_store
async def test_what_was_reserved_and_not_used_comes_back(make: MakeStore) -> None:
    store, tenant = make(Clock()), Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
    await store.take("one", tenant, 60)
    store.settle("one", tenant, 60, 15)
    quotas = await store.look(tenant)
    assert quotas == Quotas(Quota(60, 59, 1.0), Quota(60, 45, 15.0))  # the request itself is used


@every_store
async def test_a_request_that_did_not_begin_costs_nothing(make: MakeStore) -> None:
    store, tenant = make(Clock()), Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
    await store.take("one", tenant, 60)
    store.settle("one", tenant, 60, None)
    assert await store.look(tenant) == Quotas(Quota(60, 60, 0.0), Quota(60, 60, 0.0))


@every_store
async def test_more_used_than_reserved_is_a_debt(make: MakeStore) -> None:
    clock = Clock()
    store, tenant = make(clock), Tenant("acme", tokens_per_minute=60)
    await store.take("one", tenant, 60)
    store.settle("one", tenant, 60, 100)
    assert (await store.look(tenant)).tokens == Quota(60, 0, 100.0)
    verdict = await store.take("two", tenant, 1)
    assert (verdict.refused, verdict.retry_after_s) == ("tokens", 41.0)


@every_store
async def test_a_debt_after_a_long_request_counts_from_its_end(make: MakeStore) -> None:
    clock = Clock()
    store, tenant = make(clock), Tenant("acme", tokens_per_minute=60)
    await store.take("one", tenant, 10)
    clock.now += 600
    store.settle("one", tenant, 10, 40)
    assert (await store.look(tenant)).tokens == Quota(60, 30, 30.0)


@every_store
async def test_a_refund_never_fills_a_limit_above_its_brim(make: MakeStore) -> None:
    clock = Clock()
    store, tenant = make(clock), Tenant("acme", tokens_per_minute=60)
    await store.take("one", tenant, 60)
    clock.now += 45
    store.settle("one", tenant, 60, None)
    assert (await store.look(tenant)).tokens == Quota(60, 60, 0.0)
    assert (await store.take("two", tenant, 61)).refused == "tokens"


@every_store
async def test_slots_are_as_many_as_the_tenant_may_have_at_once(make: MakeStore) -> None:
    store, tenant = make(Clock()), Tenant("acme", max_concurrency=2)
    assert [(await store.take(f"r{n}", tenant, 5)).refused for n in range(3)] == ["", "", "concurrency"]
    verdict = await store.take("r3", tenant, 5)
    assert (verdict.retry_after_s, verdict.quotas) == (1.0, Quotas())
    store.settle("r0", tenant, 5, 5)
    assert (await store.take("r4", tenant, 5)).refused == ""


@every_store
async def test_one_tenants_use_is_not_anothers(make: MakeStore) -> None:
    store = make(Clock())
    acme = Tenant("acme", requests_per_minute=1, max_concurrency=1)
    globex = Tenant("globex", requests_per_minute=1, max_concurrency=1)
    assert (await store.take("same-name", acme, 1)).refused == ""
    assert (await store.take("same-name", globex, 1)).refused == ""
    store.settle("same-name", acme, 1, None)
    assert (await store.take("other", acme, 1)).refused == ""
    assert (await store.take("other", globex, 1)).refused == "requests"


@every_store
async def test_a_longer_wait_for_tokens_is_told_instead_of_a_shorter_one_for_requests(
    make: MakeStore,
) -> None:
    store = make(Clock())
    tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
    for index in range(60):
        await store.take(f"r{index}", tenant, 1)
    verdict = await store.take("last", tenant, 20)
    assert (verdict.refused, verdict.retry_after_s) == ("tokens", 20.0)


@every_store
@pytest.mark.parametrize("limit", [7, 11, 31, 700])  # whose steps add up to a little more than a minute
async def test_many_small_requests_fit_to_the_last_one(make: MakeStore, limit: int) -> None:
    store, tenant = make(Clock()), Tenant("acme", requests_per_minute=limit)
    assert {(await store.take(f"r{n}", tenant, 1)).refused for n in range(limit)} == {""}
    assert (await store.take("one-more", tenant, 1)).refused == "requests"

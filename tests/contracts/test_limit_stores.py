"""Does every store keep the promises of `LimitStore`? One suite for all of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.limits import LimitStore
from gateway.model import Quota, Quotas, Tenant
from gateway.stores.memory import MemoryStore
from tests.contracts.clocked_redis import ClockedRedis
from tests.contracts.reference import Reference
from tests.gateway.test_model import Clock

MakeStore = Callable[[Clock], AbstractAsyncContextManager[LimitStore]]


@asynccontextmanager
async def memory(clock: Clock) -> AsyncIterator[LimitStore]:
    yield MemoryStore(clock)


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest) -> MakeStore:
    if request.param == "memory":
        return memory
    url: str = request.getfixturevalue("redis_url")
    return lambda clock: ClockedRedis(url, clock)


TOLERANCE_S = 0.001  # a wait may be told that much too long or too short

# Waits and refills at these limits are whole multiples of 1/64 s, so floats and fractions agree.
LIMITS = st.sampled_from([None, 1, 15, 60, 240])
DAILY = st.sampled_from([None, None, 10, 100])


tenants = st.builds(
    Tenant,
    id=st.just("acme"),
    requests_per_minute=LIMITS,
    tokens_per_minute=LIMITS,
    requests_per_day=DAILY,
    tokens_per_day=DAILY,
    max_concurrency=st.sampled_from([None, 1, 3]),
)
steps = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 250)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.none() | st.integers(0, 400)),
    st.tuples(st.just("pass"), st.integers(1, 64 * 90)),  # in 1/64 s
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tenant=tenants, script=st.lists(steps, max_size=25))
async def test_a_store_grants_exactly_what_the_limits_hold(
    make: MakeStore, tenant: Tenant, script: list[Any]
) -> None:
    clock, reference = Clock(), Reference(tenant)
    async with make(clock) as store:
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
                    reference.check(verdict.quotas)
                case "settle", [index, used] if index < len(taken):
                    lease, tokens = taken[index]
                    store.settle(lease, tenant, tokens, used)
                    reference.settle(lease, used)
        quotas = await store.look(tenant)
        reference.check(quotas)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.sampled_from([1, 7, 60, 600, 200_000]),
    arrivals=st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 90_000)), min_size=1, max_size=30),
)
async def test_no_span_of_time_grants_more_than_a_full_limit_and_what_came_back_in_it(
    make: MakeStore, limit: int, arrivals: list[tuple[int, int]]
) -> None:
    clock = Clock()
    tenant = Tenant("acme", tokens_per_minute=limit)
    async with make(clock) as store:
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


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        async with make(clock) as store:
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


async def test_a_refusal_takes_nothing_of_any_limit(make: MakeStore) -> None:
    clock = Clock()
    async with make(clock) as store:
        tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60, max_concurrency=1)
        await store.take("held", tenant, 10)
        before = await store.look(tenant)
        for lease, cost in (("too-many-tokens", 51), ("no-slot", 1)):
            verdict = await store.take(lease, tenant, cost)
            assert verdict.refused
            assert verdict.quotas == before == await store.look(tenant)
        store.settle("held", tenant, 10, 10)
        assert (await store.take("next", tenant, 50)).refused == ""  # the refused hold no slot


async def test_settling_a_lease_that_was_refused_gives_nothing(make: MakeStore) -> None:
    tenant = Tenant("acme", tokens_per_minute=60)
    async with make(Clock()) as store:
        await store.take("held", tenant, 60)
        await store.take("refused", tenant, 30)
        store.settle("refused", tenant, 30, None)
        assert (await store.look(tenant)).tokens == Quota(60, 0, 60.0)


async def test_a_second_settlement_does_nothing(make: MakeStore) -> None:
    tenant = Tenant("acme", tokens_per_minute=60, max_concurrency=2)
    async with make(Clock()) as store:
        await store.take("one", tenant, 60)
        store.settle("one", tenant, 60, 40)
        store.settle("one", tenant, 60, None)
        assert (await store.look(tenant)).tokens == Quota(60, 20, 40.0)


async def test_what_was_reserved_and_not_used_comes_back(make: MakeStore) -> None:
    tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
    async with make(Clock()) as store:
        await store.take("one", tenant, 60)
        store.settle("one", tenant, 60, 15)
        quotas = await store.look(tenant)
        assert quotas == Quotas(Quota(60, 59, 1.0), Quota(60, 45, 15.0))  # the request itself is used


async def test_a_request_that_did_not_begin_costs_nothing(make: MakeStore) -> None:
    tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
    async with make(Clock()) as store:
        await store.take("one", tenant, 60)
        store.settle("one", tenant, 60, None)
        assert await store.look(tenant) == Quotas(Quota(60, 60, 0.0), Quota(60, 60, 0.0))


async def test_more_used_than_reserved_is_a_debt(make: MakeStore) -> None:
    clock = Clock()
    tenant = Tenant("acme", tokens_per_minute=60)
    async with make(clock) as store:
        await store.take("one", tenant, 60)
        store.settle("one", tenant, 60, 100)
        assert (await store.look(tenant)).tokens == Quota(60, 0, 100.0)
        verdict = await store.take("two", tenant, 1)
        assert (verdict.refused, verdict.retry_after_s) == ("tokens", 41.0)


async def test_a_debt_after_a_long_request_counts_from_its_end(make: MakeStore) -> None:
    clock = Clock()
    tenant = Tenant("acme", tokens_per_minute=60)
    async with make(clock) as store:
        await store.take("one", tenant, 10)
        clock.now += 600
        store.settle("one", tenant, 10, 40)
        assert (await store.look(tenant)).tokens == Quota(60, 30, 30.0)


async def test_a_refund_never_fills_a_limit_above_its_brim(make: MakeStore) -> None:
    clock = Clock()
    tenant = Tenant("acme", tokens_per_minute=60)
    async with make(clock) as store:
        await store.take("one", tenant, 60)
        clock.now += 45
        store.settle("one", tenant, 60, None)
        assert (await store.look(tenant)).tokens == Quota(60, 60, 0.0)
        assert (await store.take("two", tenant, 61)).refused == "tokens"


async def test_slots_are_as_many_as_the_tenant_may_have_at_once(make: MakeStore) -> None:
    tenant = Tenant("acme", max_concurrency=2)
    async with make(Clock()) as store:
        assert [(await store.take(f"r{n}", tenant, 5)).refused for n in range(3)] == ["", "", "concurrency"]
        verdict = await store.take("r3", tenant, 5)
        assert (verdict.retry_after_s, verdict.quotas) == (1.0, Quotas())
        store.settle("r0", tenant, 5, 5)
        assert (await store.take("r4", tenant, 5)).refused == ""


async def test_one_tenants_use_is_not_anothers(make: MakeStore) -> None:
    async with make(Clock()) as store:
        acme = Tenant("acme", requests_per_minute=1, max_concurrency=1)
        globex = Tenant("globex", requests_per_minute=1, max_concurrency=1)
        assert (await store.take("of-acme", acme, 1)).refused == ""
        assert (await store.take("of-globex", globex, 1)).refused == ""
        store.settle("of-acme", acme, 1, None)
        assert (await store.take("other", acme, 1)).refused == ""
        assert (await store.take("other", globex, 1)).refused == "requests"


async def test_a_longer_wait_for_tokens_is_told_instead_of_a_shorter_one_for_requests(
    make: MakeStore,
) -> None:
    async with make(Clock()) as store:
        tenant = Tenant("acme", requests_per_minute=60, tokens_per_minute=60)
        for index in range(60):
            await store.take(f"r{index}", tenant, 1)
        verdict = await store.take("last", tenant, 20)
        assert (verdict.refused, verdict.retry_after_s) == ("tokens", 20.0)


@pytest.mark.parametrize("limit", [7, 11, 31, 700])  # whose steps add up to a little more than a minute
async def test_many_small_requests_fit_to_the_last_one(make: MakeStore, limit: int) -> None:
    tenant = Tenant("acme", requests_per_minute=limit)
    async with make(Clock()) as store:
        assert {(await store.take(f"r{n}", tenant, 1)).refused for n in range(limit)} == {""}
        assert (await store.take("one-more", tenant, 1)).refused == "requests"


@pytest.mark.parametrize(
    ("before", "after", "remaining"),
    [(30, 300, 270), (300, 60, 30), (300, 10, 0), (30, 30, 0), (None, 30, 30)],
)
async def test_of_a_limit_that_changes_the_amount_that_was_used_stays_used(
    make: MakeStore, before: int | None, after: int, remaining: int
) -> None:
    clock = Clock()
    async with make(clock) as store:
        was, now = Tenant("acme", tokens_per_day=before), Tenant("acme", tokens_per_day=after)
        await store.take("one", was, 30)
        left = (await store.look(now)).tokens
        assert left is not None
        assert (left.limit, left.remaining) == (after, remaining)
        assert left.reset_s <= 86400, "a lower limit is at most used up"
        assert (await store.take("two", now, remaining)).refused == ""
        assert (await store.take("three", now, 1)).refused == "tokens"


async def test_a_debt_is_not_forgiven_by_a_lower_limit(make: MakeStore) -> None:
    async with make(Clock()) as store:
        was, now = Tenant("acme", tokens_per_minute=60), Tenant("acme", tokens_per_minute=30)
        await store.take("one", was, 60)
        store.settle("one", was, 60, 120)
        assert (await store.look(now)).tokens == Quota(30, 0, 120.0)

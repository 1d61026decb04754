"""Does every store keep the promises of `UsageStore`? One suite for all of them."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import StoreUnavailable
from gateway.settings import Store
from gateway.settings.values import MODEL_NAME
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from gateway.usage import MemoryUsage, Meter, UsageStore, meter
from gateway.usage.rows import Labels, Sums
from tests.gateway.usage.samples import NOON, USED, ended, labels

TODAY = date(2026, 11, 30)
identifiers = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
models = st.from_regex(MODEL_NAME, fullmatch=True)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # all that UTF-8 can carry
every_store = pytest.mark.parametrize("kind", ["memory", "redis"])


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[UsageStore]:
    """An empty store; that of Redis believes that it is noon."""
    if kind == "memory":
        yield MemoryUsage(retention_days=400)
        return
    client = Target(Store(url=url)).client()
    await client.flushdb()
    yield RedisUsage(client, "gateway", 400, lambda: NOON)
    await client.aclose()


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[UsageStore]:
    async with opened(request.param, redis_url) as made:
        yield made


async def test_batches_add_up_by_their_labels(store: UsageStore) -> None:
    await store.apply("p", 1, {labels(): (1, 100, 64, 20), labels("globex"): (2, 0, 0, 0)})
    await store.apply("p", 2, {labels(): (1, 5, 0, 7), labels(outcome="client_gone"): (1, 9, 0, 1)})

    assert {key: tuple(counts) for key, counts in (await store.sums(TODAY, TODAY)).items()} == {
        labels(): (2, 105, 64, 27),
        labels("globex"): (2, 0, 0, 0),
        labels(outcome="client_gone"): (1, 9, 0, 1),
    }


async def test_an_empty_store_has_nothing(store: UsageStore) -> None:
    assert await store.sums(TODAY, TODAY) == {}


@pytest.mark.parametrize("again", [2, 1])
async def test_a_number_that_was_added_is_not_added_again(store: UsageStore, again: int) -> None:
    await store.apply("p", 1, {labels(): (1, 10, 0, 2)})
    await store.apply("p", 2, {labels(): (1, 10, 0, 2)})

    await store.apply("p", again, {labels(): (1, 10, 0, 2)})

    assert list((await store.sums(TODAY, TODAY))[labels()]) == [2, 20, 0, 4]


async def test_the_numbers_of_one_process_are_not_anothers(store: UsageStore) -> None:
    await store.apply("p", 7, {labels(): (1, 10, 0, 2)})
    await store.apply("q", 7, {labels(): (1, 10, 0, 2)})
    await store.apply("q", 8, {labels(): (1, 10, 0, 2)})

    assert list((await store.sums(TODAY, TODAY))[labels()]) == [3, 30, 0, 6]


async def test_both_ends_of_a_period_belong_to_it(store: UsageStore) -> None:
    days = ("2026-11-26", "2026-11-27", "2026-11-28", "2026-11-29")
    await store.apply("p", 1, {labels(day=day): (1, 0, 0, 0) for day in days})

    found = await store.sums(date(2026, 11, 27), date(2026, 11, 28))

    assert sorted(day for day, *_ in found) == ["2026-11-27", "2026-11-28"]
    assert await store.sums(date(2026, 11, 28), date(2026, 11, 27)) == {}


async def test_one_tenant_is_told_apart(store: UsageStore) -> None:
    await store.apply("p", 1, {labels("acme"): (1, 0, 0, 0), labels("acme-2"): (2, 0, 0, 0)})

    assert list(await store.sums(TODAY, TODAY, "acme")) == [labels("acme")]
    assert await store.sums(TODAY, TODAY, "nobody") == {}


async def test_what_was_told_stays_as_it_was(store: UsageStore) -> None:
    await store.apply("p", 1, {labels(): (1, 10, 0, 2)})
    told = await store.sums(TODAY, TODAY)
    await store.apply("p", 2, {labels(): (1, 10, 0, 2)})

    assert list(told[labels()]) == [1, 10, 0, 2]


@every_store
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    used=st.dictionaries(
        st.tuples(st.just("2026-11-30"), identifiers | anything, identifiers, models | anything, identifiers),
        st.tuples(*[st.integers(1, 2**60)] * 4),
        max_size=20,
    )
)
async def test_any_names_and_amounts_come_back_as_they_went(kind: str, redis_url: str, used: Sums) -> None:
    async with opened(kind, redis_url) as store:
        await store.apply("p", 1, used)

        found = await store.sums(TODAY, TODAY)

    assert {key: tuple(counts) for key, counts in found.items()} == used


class Unsteady:
    """A store that is away, or whose answers are lost, when `course` says so; then it is well."""

    def __init__(self, store: UsageStore, course: list[str]) -> None:
        self._store = store
        self._course = iter(course)
        self.sums = store.sums

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        happens = next(self._course, "ok")
        if happens != "away":
            await self._store.apply(process, sequence, sums)
        if happens != "ok":
            raise StoreUnavailable("Try again.", retry_after_s=1)


uses = st.tuples(
    st.sampled_from(["2026-11-29", "2026-11-30"]),
    st.sampled_from(["acme", "globex"]),
    st.sampled_from(["small", "large", None]),
    st.sampled_from(["ok", "client_gone"]),
    st.booleans(),  # whether it is charged
)


@every_store
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.lists(uses, max_size=12), max_size=12),
    course=st.lists(st.sampled_from(["ok", "away", "lost"]), max_size=40),
)
async def test_whatever_answers_are_lost_each_request_counts_once(
    kind: str, redis_url: str, steps: list[list[tuple[str, str, str | None, str, bool]]], course: list[str]
) -> None:
    all_requests: Counter[Labels] = Counter()
    charged: Counter[Labels] = Counter()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(meter, "MOST_SETS_A_BATCH", 3)  # so that several are under way
        async with opened(kind, redis_url) as store:
            metering = Meter(Unsteady(store, course))
            for step in steps:
                for day, tenant, model, outcome, is_charged in step:
                    usage, at = USED if is_charged else None, NOON - 86_400 * (day == "2026-11-29")
                    metering.record(ended(tenant, model=model, outcome=outcome, charged=usage, ended_at=at))
                    key = (day, tenant, "acme-1", model or "none", outcome)
                    all_requests[key] += 1
                    charged[key] += is_charged
                await metering.flush()
            while not await metering.flush():
                pass
            found = await store.sums(date(2026, 11, 29), TODAY)

    assert {key: tuple(counts) for key, counts in found.items()} == {
        key: (count, 100 * charged[key], 64 * charged[key], 20 * charged[key])
        for key, count in all_requests.items()
    }

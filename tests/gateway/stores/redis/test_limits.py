"""Are limits in Redis taken in few calls, and is everything given back that a caller does not come to use?"""

import asyncio
from typing import Any

import pytest

from gateway.errors import StoreUnavailable
from gateway.model import Quota, Quotas, Tenant
from gateway.stores.redis.batches import Answer
from tests.contracts.clocked_redis import ClockedRedis
from tests.gateway.stores.redis.opened import ACME, Opened, opened
from tests.gateway.test_model import Clock

DAILY = Tenant("acme", tokens_per_day=1000)  # which comes back too slowly to be seen


async def remaining(store: Opened, tenant: Tenant) -> int:
    """Tokens."""
    quota = (await store.limits.look(tenant)).tokens
    assert quota is not None
    return quota.remaining


async def test_what_is_asked_at_once_is_one_call(redis_url: str) -> None:
    async with opened(redis_url) as store:
        before = await store.calls()
        verdicts = await asyncio.gather(*(store.limits.take(f"r{n}", ACME, 5) for n in range(90)))
        assert {verdict.refused for verdict in verdicts} == {""}
        assert await store.calls() - before == 1
        assert len(await store.leases()) == 90


async def test_a_settlement_rides_along_with_the_next_admission(redis_url: str) -> None:
    async with opened(redis_url) as store:
        before = await store.calls()
        for n in range(10):
            await store.limits.take(f"r{n}", DAILY, 5)
            store.limits.settle(f"r{n}", DAILY, 5, 3)
        assert await store.calls() - before <= 11  # the last settlement may have gone by itself
        assert (await remaining(store, DAILY)) == 1000 - 30


async def test_a_settlement_that_nothing_follows_goes_by_itself(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.take("r1", ACME, 5)
        store.limits.settle("r1", ACME, 5, 3)
        while await store.leases():  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.001)


async def test_a_batch_larger_than_one_call_is_taken_in_several(redis_url: str) -> None:
    tenant = Tenant("acme", max_concurrency=1500)
    async with opened(redis_url) as store:
        before = await store.calls()
        await asyncio.gather(*(store.limits.take(f"r{n}", tenant, 1) for n in range(1200)))
        assert await store.calls() - before == 3
        assert len(await store.leases()) == 1200


async def test_a_tenant_without_limits_costs_no_call(redis_url: str) -> None:
    async with opened(redis_url) as store:
        before = await store.calls()
        assert (await store.limits.take("r1", Tenant("free"), 5)).quotas == Quotas()
        store.limits.settle("r1", Tenant("free"), 5, 5)
        assert await store.limits.look(Tenant("free")) == Quotas()
        assert await store.calls() == before


async def test_who_leaves_before_the_call_is_sent_takes_nothing(redis_url: str) -> None:
    async with opened(redis_url) as store:
        waiting = asyncio.create_task(store.limits.take("r1", ACME, 5))
        await asyncio.sleep(0)  # it has asked; the call goes at the end of this turn
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await store.limits.look(ACME)).tokens == Quota(100_000, 100_000, 0.0)
        assert await store.leases() == []


async def test_who_leaves_while_the_call_is_under_way_gets_it_undone(redis_url: str) -> None:
    async with opened(redis_url) as store:
        waiting = asyncio.create_task(store.limits.take("r1", ACME, 5))
        while not store.batches._link.is_busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        quotas = await store.limits.look(ACME)
        assert quotas == Quotas(Quota(1000, 1000, 0.0), Quota(100_000, 100_000, 0.0))
        assert await store.leases() == []


async def test_who_leaves_as_the_answer_comes_gets_it_undone(redis_url: str) -> None:
    async with opened(redis_url) as store:
        asked = store.batches.ask
        answers = []

        def ask(*step: Any) -> asyncio.Future[Answer]:
            def answered(future: asyncio.Future[Answer]) -> None:
                answers.append(future.result())
                waiting.cancel()

            future = asked(*step)
            # Before the task's own callback, so that it is cancelled between the answer and its waking.
            future.add_done_callback(answered)
            return future

        store.batches.ask = ask  # type: ignore[method-assign, assignment]
        waiting = asyncio.create_task(store.limits.take("r1", ACME, 5))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        store.batches.ask = asked  # type: ignore[method-assign]
        assert answers[0][0] == 0, "it was granted"
        quotas = await store.limits.look(ACME)
        assert quotas == Quotas(Quota(1000, 1000, 0.0), Quota(100_000, 100_000, 0.0))
        assert await store.leases() == []


async def test_every_key_of_limits_ends_by_itself_and_lies_in_its_tenants_slot(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.take("r1", ACME, 50_000)
        await store.limits.take("r2", Tenant("globex", tokens_per_day=10), 5)
        names = sorted(await store.client.keys("*"))
        assert names == [
            "test:processes",
            "test:{acme}:leases",
            "test:{acme}:limits",
            "test:{globex}:leases",
            "test:{globex}:limits",
        ]
        for name in names:
            assert 0 < await store.client.pttl(name) <= 86_400_000


async def test_processes_share_a_limit(redis_url: str) -> None:
    tenant = Tenant("acme", requests_per_minute=20)
    async with opened(redis_url) as one, opened(redis_url, process="p2") as two:
        both = [one, two] * 100
        verdicts = await asyncio.gather(
            *(store.limits.take(f"r{n}", tenant, 1) for n, store in enumerate(both))
        )
        assert sum(not verdict.refused for verdict in verdicts) == 20


async def test_a_process_knows_how_many_there_are(redis_url: str) -> None:
    async with opened(redis_url) as one:
        assert one.limits.processes == 1
        async with opened(redis_url, process="p2") as two:
            assert two.limits.processes == 2
        async with opened(redis_url, process="p3") as three:
            assert three.limits.processes == 2, "one has said that it ends"


async def test_a_lease_of_a_dead_process_lapses(redis_url: str) -> None:
    clock, tenant = Clock(), Tenant("acme", max_concurrency=1)
    async with ClockedRedis(redis_url, clock, lease_ttl_s=30) as store:
        await store.take("of-the-dead", tenant, 1)
        store.limits._held.clear()  # nobody renews it
        store.limits._accounts.clear()
        clock.now += 29.9
        assert (await store.take("next", tenant, 1)).refused == "concurrency"
        clock.now += 0.1
        assert (await store.take("next", tenant, 1)).refused == ""


async def test_a_long_stream_keeps_its_slot(redis_url: str) -> None:
    clock, tenant = Clock(), Tenant("acme", max_concurrency=1)
    async with ClockedRedis(redis_url, clock, lease_ttl_s=30) as store:
        await store.take("long", tenant, 1)
        for _ in range(10):
            clock.now += 10
            await store.look(tenant)
            store.limits._renew()
            assert (await store.take("other", tenant, 1)).refused == "concurrency"
        store.settle("long", tenant, 1, 1)
        assert (await store.take("other", tenant, 1)).refused == ""


async def test_a_lease_that_redis_lost_is_held_again_and_settles_to_nothing(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.take("r1", DAILY, 500)
        await store.client.flushall()
        store.limits._renew()
        await store.limits.look(DAILY)
        assert await store.leases() == ["r1"]
        await store.limits.take("r2", DAILY, 100)
        store.limits.settle("r1", DAILY, 500, 1)  # would give back what another has taken
        assert await remaining(store, DAILY) == 900
        assert await store.leases() == ["r2"]


async def test_a_clock_that_is_set_back_locks_nobody_out(redis_url: str) -> None:
    clock, tenant = Clock(), Tenant("acme", requests_per_minute=60, max_concurrency=2)
    clock.now += 10_000
    async with ClockedRedis(redis_url, clock, lease_ttl_s=30) as store:
        for n in range(2):
            await store.take(f"r{n}", tenant, 1)
        store.limits._held.clear()
        store.limits._accounts.clear()
        clock.now -= 10_000  # another Redis has taken over
        assert (await store.look(tenant)).requests == Quota(60, 58, 2.0)
        assert (await store.take("next", tenant, 1)).refused == "", "the leases would lapse in hours"
        clock.now += 3
        assert (await store.look(tenant)).requests == Quota(60, 60, 0.0)


async def test_a_forgotten_script_is_sent_again(redis_url: str) -> None:
    async with opened(redis_url) as store:
        await store.limits.take("r1", ACME, 5)
        await store.client.script_flush()
        assert (await store.limits.take("r2", ACME, 5)).refused == ""
        assert await store.leases() == ["r1", "r2"]
        assert store.reasons == []


async def test_at_the_end_everything_is_settled_and_the_process_is_gone(redis_url: str) -> None:
    async with opened(redis_url) as observer:
        async with opened(redis_url, process="p2") as store:
            for n in range(600):
                await store.limits.take(f"r{n}", Tenant("acme", max_concurrency=1000), 5)
            for n in range(600):
                store.limits.settle(f"r{n}", ACME, 5, 3)
        assert await observer.leases() == []
        assert await observer.client.zrange("test:processes", 0, -1) == ["p1"]


async def test_nothing_is_asked_of_a_redis_that_is_away() -> None:
    async with opened("redis://127.0.0.1:9/0") as store:
        assert not store.limits.is_up
        assert store.reasons
        with pytest.raises(StoreUnavailable):
            await store.limits.take("r1", ACME, 5)

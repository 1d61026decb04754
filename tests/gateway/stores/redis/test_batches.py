"""What becomes of steps whose call is lost, and of those that wait while Redis is away?"""

import asyncio
import logging

import pytest

from gateway.errors import StoreUnavailable
from gateway.model import Quota, Tenant
from gateway.stores.redis import batches
from gateway.stores.redis.batches import SETTLE, Entry, Step
from tests.gateway.stores.redis.opened import ACME, opened
from tests.redis_server import RedisServer
from tests.relay import Relay

DAILY = Tenant("acme", tokens_per_day=1000)  # which comes back too slowly to be seen


async def test_what_redis_did_and_could_not_tell_is_undone(shared_redis: RedisServer, redis_url: str) -> None:
    async with Relay(shared_redis.port) as relay, opened(relay.url, timeout_s=0.1) as store:
        relay.stall_answers()
        with pytest.raises(StoreUnavailable):
            await store.limits.take("r1", DAILY, 500)
        relay.resume()
        await store.up.wait()
        assert (await store.limits.look(DAILY)).tokens == Quota(1000, 1000, 0.0)
        assert await store.leases() == []


async def test_a_settlement_whose_answer_was_lost_is_made_once(
    shared_redis: RedisServer, redis_url: str
) -> None:
    async with Relay(shared_redis.port) as relay, opened(relay.url, timeout_s=0.1) as store:
        await store.limits.take("r1", DAILY, 500)
        relay.stall_answers()
        store.limits.settle("r1", DAILY, 500, 100)
        await store.down.wait()
        relay.resume()
        await store.up.wait()
        quota = (await store.limits.look(DAILY)).tokens
        assert quota is not None
        assert quota.remaining == 900
        assert await store.leases() == []


async def test_while_redis_is_away_settlements_wait_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batches, "MOST_WAITING", 3)
    caplog.set_level(logging.WARNING)
    async with opened("redis://127.0.0.1:9/0") as store:
        for number in range(5):
            store.batches.tell(SETTLE, None, (number,))
        assert [step.words for step in store.batches._waiting] == [(2,), (3,), (4,)]
    assert [record.getMessage() for record in caplog.records] == [
        "settlements wait for Redis beyond 3; the oldest are dropped"
    ]


async def test_charges_made_elsewhere_are_charged_whether_or_not_they_fit(redis_url: str) -> None:
    async with opened(redis_url) as store:
        store.limits.impose("running", DAILY, (1, 700, 1, 700))
        store.limits.impose("running", DAILY, (1, 700, 1, 700))  # again, as after a lost answer
        store.limits.impose("", DAILY, (2, 400.5, 2, 400.5))
        quota = (await store.limits.look(DAILY)).tokens
        assert quota is not None
        assert (quota.remaining, round(quota.reset_s)) == (0, round(1100.5 * 86.4))
        assert await store.leases() == ["running"]
        store.limits.settle("running", DAILY, 700, 0)
        quota = (await store.limits.look(DAILY)).tokens
        assert quota is not None
        assert quota.remaining == 599


async def test_how_long_each_call_took_is_told(redis_url: str) -> None:
    seconds: list[float] = []
    async with opened(redis_url) as store:
        await store.limits.look(ACME)
        store.batches._observe = seconds.append
        await asyncio.gather(*(store.limits.take(f"r{n}", ACME, 1) for n in range(5)))
        assert len(seconds) == 1
        assert 0 < seconds[0] < 5


async def test_whoever_has_left_is_not_asked_for(redis_url: str) -> None:
    async with opened(redis_url) as store:
        future: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        future.cancel()
        store.batches._waiting.append(Step(SETTLE, Entry(("a", "b"), []), ("r1", 0, 0), future))
        store.batches._asked += 1
        assert store.batches._next_steps() == []
        assert store.batches._asked == 0


async def test_an_end_while_redis_does_not_answer_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batches, "LAST_CALL_S", 0.05)
    with RedisServer() as server:
        async with opened(server.url) as store:
            await store.limits.take("r1", ACME, 5)
            server.freeze()
    assert "last settlements" in caplog.text

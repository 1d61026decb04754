"""Is it kept in Redis, for all replicas, which workers drain, and do they hear of it?"""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway import settings
from gateway.errors import StoreUnavailable
from gateway.stores.redis.switch import RedisSwitch
from gateway.stores.redis.target import Target


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url, decode_responses=True)
    yield client
    await client.aclose()


async def test_whoever_reads_the_switch_sees_what_others_set(client: Redis) -> None:
    here, there = RedisSwitch(client), RedisSwitch(client)
    assert await there.draining() == frozenset()
    for worker_id in ("w0", "w1", "w1"):
        await here.drain(worker_id)
    assert await there.draining() == {"w0", "w1"}
    await there.resume("w0")
    await there.resume("w9")
    assert await here.draining() == {"w1"}


async def test_gateways_with_prefixes_of_their_own_share_nothing(client: Redis) -> None:
    await RedisSwitch(client, "a").drain("w0")
    assert await RedisSwitch(client, "b").draining() == frozenset()
    assert await client.keys("*") == ["a:draining"]


async def test_a_worker_that_drains_does_so_until_it_is_resumed(client: Redis) -> None:
    await RedisSwitch(client).drain("w0")
    assert await client.ttl("gateway:draining") == -1  # never


async def test_each_change_is_news(client: Redis) -> None:
    switch = RedisSwitch(client, "a")
    async with client.pubsub() as listening:
        await listening.subscribe("a:news")
        assert (await listening.get_message(timeout=10) or {})["type"] == "subscribe"
        for change in (switch.drain, switch.resume):
            await change("w0")
            assert (await listening.get_message(timeout=10) or {})["data"] == "workers"


async def test_a_redis_that_is_away_is_told_as_such_without_its_address() -> None:
    client = Target(settings.Store(url="redis://127.0.0.1:9/0")).client()
    switch = RedisSwitch(client)
    for step in (switch.drain("w0"), switch.resume("w0"), switch.draining()):
        with pytest.raises(StoreUnavailable) as caught:
            await step
        assert caught.value.retry_after_s == 1
        assert "127.0.0.1" not in caught.value.message
        assert "ConnectionError" in caught.value.detail
    await client.aclose()

"""Are sums of usage kept in Redis as promised, through all that Redis does?

What all stores of usage promise is in tests/gateway/usage/test_stores.py.
"""

import json
import logging
from collections.abc import AsyncIterator
from datetime import date
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from gateway.errors import StoreUnavailable
from gateway.settings import Store
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from gateway.usage import Meter
from tests.gateway.usage.samples import NOON, ended
from tests.redis_server import RedisServer
from tests.relay import Relay

DAY_S = 86_400
TODAY = date(2026, 11, 30)
ACME = ("2026-11-30", "acme", "acme-1", "small", "ok")
GLOBEX = ("2026-11-30", "globex", "globex-1", "small", "ok")


def store_on(client: Redis, retention_days: int = 30) -> RedisUsage:
    return RedisUsage(client, "here", retention_days, lambda: NOON)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    client = Target(Store(url=redis_url)).client()
    yield client
    await client.aclose()


@pytest.fixture
async def fragile() -> AsyncIterator[tuple[RedisServer, RedisUsage]]:
    """A Redis of the test's own, which gives up after 50 ms."""
    with RedisServer() as server:
        client = Target(Store(url=server.url, timeout_ms=50)).client()
        yield server, store_on(client)
        await client.aclose()


async def test_a_day_is_a_hash_with_a_field_for_each_sum_that_is_not_nothing(client: Redis) -> None:
    await store_on(client).apply("p", 1, {ACME: (2, 100, 0, 7), GLOBEX: (1, 0, 0, 0)})

    assert sorted(await client.keys()) == ["here:usage:2026-11-30", "here:usage:applied:p"]
    fields = await client.hgetall("here:usage:2026-11-30")
    assert {tuple(json.loads(field)): amount for field, amount in fields.items()} == {
        ("acme", "acme-1", "small", "ok", "requests"): "2",
        ("acme", "acme-1", "small", "ok", "prompt"): "100",
        ("acme", "acme-1", "small", "ok", "completion"): "7",
        ("globex", "globex-1", "small", "ok", "requests"): "1",
    }


async def test_everything_expires_and_what_is_added_to_later_does_so_later(
    client: Redis,
) -> None:
    store = store_on(client, retention_days=3)
    await store.apply("p", 1, {ACME: (1, 1, 1, 1), ("2026-11-29", *ACME[1:]): (1, 1, 1, 1)})
    days = ["here:usage:2026-11-30", "here:usage:2026-11-29"]
    for day in days:
        assert 3 * DAY_S - 60 < await client.ttl(day) <= 3 * DAY_S
    assert 7 * DAY_S - 60 < await client.ttl("here:usage:applied:p") <= 7 * DAY_S

    for key in (*days, "here:usage:applied:p"):
        await client.expire(key, 60)
    await store.apply("p", 2, {ACME: (1, 1, 1, 1)})

    assert [await client.ttl(day) > 60 for day in days] == [True, False]
    assert await client.ttl("here:usage:applied:p") > 60


async def test_gateways_with_other_prefixes_keep_their_own(client: Redis) -> None:
    await store_on(client).apply("p", 1, {ACME: (1, 0, 0, 0)})

    assert await RedisUsage(client, "there", 30, lambda: NOON).sums(TODAY, TODAY) == {}


async def test_all_time_is_the_days_that_can_be_there(client: Redis) -> None:
    store = store_on(client, retention_days=2)
    days = [f"2026-11-{day}" for day in (27, 28, 29, 30)] + ["2026-12-01", "2026-12-02"]
    await store.apply("p", 1, {(day, *ACME[1:]): (1, 0, 0, 0) for day in days})

    assert sorted(day for day, *_ in await store.sums(date.min, date.max)) == days[1:5]


async def test_more_sums_than_are_read_at_once_come_whole(client: Redis) -> None:
    store = store_on(client)
    many = {("2026-11-30", f"t-{n}", "k", "small", "ok"): (n, n + 1, n + 2, n + 3) for n in range(1, 1_500)}
    await store.apply("p", 1, many)

    assert {key: tuple(counts) for key, counts in (await store.sums(TODAY, TODAY)).items()} == many


async def test_amounts_too_large_for_a_double_stay_exact(client: Redis) -> None:
    store = store_on(client)
    await store.apply("p", 1, {ACME: (1, 2**53, 0, 2**62)})
    await store.apply("p", 2, {ACME: (1, 1, 0, 1)})

    assert (await store.sums(TODAY, TODAY))[ACME] == [2, 2**53 + 1, 0, 2**62 + 1]


async def test_a_redis_that_forgot_the_script_is_told_it_again(client: Redis) -> None:
    store = store_on(client)
    await store.apply("p", 1, {ACME: (1, 0, 0, 0)})
    await client.script_flush()
    await store.apply("p", 2, {ACME: (1, 0, 0, 0)})

    assert (await store.sums(TODAY, TODAY))[ACME] == [2, 0, 0, 0]


# Damage


async def test_a_sum_that_is_no_number_does_not_keep_the_others_from_being_added_once(
    client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_on(client)
    await client.hset("here:usage:2026-11-30", '["acme","acme-1","small","ok","requests"]', "many")
    for _ in range(2):
        await store.apply("p", 1, {ACME: (1, 100, 0, 7), GLOBEX: (1, 5, 0, 0)})
    [record] = caplog.records
    assert record.message == "1 sums of usage could not be added: Redis holds no numbers in their place"

    found = await store.sums(TODAY, TODAY)

    assert found == {ACME: [0, 100, 0, 7], GLOBEX: [1, 5, 0, 0]}


@pytest.mark.parametrize("field", ["note", '["acme"]', '["a","b","c","d","seconds"]', '["a","b","c","d",5]'])
async def test_fields_that_nobody_here_wrote_are_left_out_and_told(
    client: Redis, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    store = store_on(client)
    await store.apply("p", 1, {ACME: (1, 0, 0, 0)})
    await client.hset("here:usage:2026-11-30", field, "5")

    assert await store.sums(TODAY, TODAY) == {ACME: [1, 0, 0, 0]}
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (
            logging.WARNING,
            "1 sums of usage in here:usage:2026-11-30 cannot be read, and are left out",
        )
    ]


async def test_a_batch_that_cannot_be_numbered_adds_nothing(client: Redis) -> None:
    store = store_on(client)
    await client.lpush("here:usage:applied:p", "x")

    with pytest.raises(StoreUnavailable, match="does not answer") as told:
        await store.apply("p", 1, {ACME: (1, 0, 0, 0)})

    assert "WRONGTYPE" in told.value.detail
    assert await store.sums(TODAY, TODAY) == {}


# Away


async def test_a_redis_that_is_gone_is_told_without_its_address(
    fragile: tuple[RedisServer, RedisUsage],
) -> None:
    server, store = fragile
    server.kill()

    for step in (store.apply("p", 1, {ACME: (1, 0, 0, 0)}), store.sums(TODAY, TODAY)):
        with pytest.raises(StoreUnavailable) as told:
            await step
        assert told.value.retry_after_s == 1
        assert str(server.port) not in told.value.message
        assert str(server.port) in told.value.detail


async def test_a_batch_that_a_frozen_redis_takes_after_all_counts_once(
    fragile: tuple[RedisServer, RedisUsage],
) -> None:
    server, store = fragile
    await store.apply("p", 1, {ACME: (1, 10, 0, 1)})
    server.freeze()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.apply("p", 2, {ACME: (1, 10, 0, 1)})  # waits in the socket, and will be read
    server.thaw()

    await store.apply("p", 2, {ACME: (1, 10, 0, 1)})
    await store.apply("p", 3, {ACME: (1, 10, 0, 1)})

    assert (await store.sums(TODAY, TODAY))[ACME] == [3, 30, 0, 3]


async def test_requests_whose_answers_are_lost_on_the_way_count_once(redis_url: str) -> None:
    async with Relay(int(urlsplit(redis_url).port or 0)) as relay:
        client = Target(Store(url=relay.url, timeout_ms=50)).client()
        metering = Meter(store_on(client))
        metering.record(ended())
        relay.stall_answers()
        assert not await metering.flush()
        metering.record(ended())
        assert not await metering.flush()
        await relay.cut()
        relay.resume()
        assert await metering.flush()

        assert [row.requests for row in await metering.report(TODAY, TODAY)] == [2]
        await client.aclose()


async def test_a_redis_that_comes_back_empty_takes_what_follows(
    fragile: tuple[RedisServer, RedisUsage],
) -> None:
    server, store = fragile
    await store.apply("p", 1, {ACME: (1, 10, 0, 1)})
    server.kill()
    server.start()
    await store.apply("p", 2, {ACME: (1, 10, 0, 1)})

    assert await store.sums(TODAY, TODAY) == {ACME: [1, 10, 0, 1]}

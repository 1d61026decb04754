"""Is the one slot of a tenant free again after whatever happened, also behind a Redis that is slow?"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from redis.asyncio import Redis

from tests.conftest import KEY, configuration, served, sha256
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.gates import TOKEN, Gate
from tests.e2e.observed import GUARD_S, limited, observed
from tests.fakes import FakeWorker, Received, Reply, plain_answer
from tests.redis_server import RedisServer
from tests.relay import Relay

LEASES = "gateway:{acme}:leases"
OTHER_KEY = "sk-test-of-the-other-tenant"
ONE_AT_ONCE = [{"id": "acme", "max_concurrency": 1}]
LEAVING = pytest.mark.parametrize("leave", [Caller.leave, Caller.reset], ids=["by FIN", "by RST"])


@pytest.fixture(autouse=True)
async def guarded() -> AsyncIterator[None]:
    async with asyncio.timeout(GUARD_S):
        yield


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def taken(redis: Redis, count: int) -> None:
    """Wait until so many slots are. Only polling shows it."""
    while await redis.zcard(LEASES) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def one_token(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(TOKEN)
    await reply.peer_closed()


async def ask(client: httpx.AsyncClient) -> int:
    return (await client.post(COMPLETIONS, json=QUESTION)).status_code


@pytest.mark.case("L1")
@LEAVING
async def test_who_leaves_before_a_slow_redis_has_answered_leaves_no_slot_behind(
    leave: Callable[[Caller], None], shared_redis: RedisServer, redis: Redis
) -> None:
    async with Relay(shared_redis.port) as relay, FakeWorker() as worker:
        store = {"url": relay.url, "timeout_ms": 10_000}
        async with served(configuration(worker, store=store, tenants=ONE_AT_ONCE)) as gateway:
            async with Caller(gateway.url) as caller:
                relay.stall_answers()
                caller.ask(STREAMED)
                await taken(redis, 1)  # and the gateway has not heard of it
                leave(caller)
            async with gateway.http(None) as client:
                await client.get("/health")  # by now it has noticed
            relay.resume()
            await taken(redis, 0)
            async with gateway.http() as client:
                assert await ask(client) == 200
            assert len(worker.requests) == 1


@pytest.mark.case("L1")
@LEAVING
async def test_who_leaves_behind_a_slow_redis_leaves_no_slot_behind(
    leave: Callable[[Caller], None], shared_redis: RedisServer, redis: Redis
) -> None:
    scripts = [silent, plain_answer, one_token, plain_answer]
    async with Relay(shared_redis.port) as relay, FakeWorker(scripts) as worker:
        store = {"url": relay.url, "timeout_ms": 10_000}
        async with (
            served(configuration(worker, store=store, tenants=ONE_AT_ONCE)) as gateway,
            gateway.http() as client,
        ):
            relay.latency_ms = 200
            for count in (1, 2):
                async with Caller(gateway.url) as caller:
                    caller.ask(STREAMED)
                    await worker.received(2 * count - 1)
                    if count == 2:
                        await caller.until(b"\n\n")
                    assert await ask(client) == 429
                    leave(caller)
                    await worker.closed_by_peer(count)
                await taken(redis, 0)
                assert await ask(client) == 200
                await taken(redis, 0)


@pytest.mark.case("L1")
@pytest.mark.usefixtures("either_lane")
async def test_a_turn_that_never_came_and_a_stream_that_was_left_free_the_slot() -> None:
    gate = Gate()
    tenants = [*ONE_AT_ONCE, {"id": "other"}]
    keys = [
        {"id": f"{tenant}-1", "tenant": tenant, "sha256": sha256(key)}
        for tenant, key in (("acme", KEY), ("other", OTHER_KEY))
    ]
    async with (
        FakeWorker([gate, plain_answer, one_token, plain_answer]) as worker,
        observed(
            worker, workers=limited(worker), tenants=tenants, keys=keys, admission={"max_wait_s": 0.2}
        ) as gateway,
        gateway.http() as client,
        gateway.http(OTHER_KEY) as other,
    ):
        holding = asyncio.create_task(ask(other))
        await worker.received(1)
        assert [await ask(client) for _ in range(3)] == [503] * 3  # and not 429, so the slot is free
        gate.open.set()
        assert await holding == 200
        assert await ask(client) == 200
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED)
            await caller.until(b"\n\n")
            caller.leave()
            await gateway.reaches(1, "gateway_requests_total", outcome="client_gone")
        assert await ask(client) == 200


@pytest.mark.case("L6")
async def test_after_a_stall_of_redis_limits_are_shared_again_and_no_slot_is_left(
    shared_redis: RedisServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    on = asyncio.Event()

    async def stream(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await on.wait()
        await reply.event(TOKEN)
        await reply.done()

    async with Relay(shared_redis.port) as relay, FakeWorker([stream, plain_answer]) as worker:
        store = {"url": relay.url, "timeout_ms": 100}
        tenants = [{"id": "acme", "max_concurrency": 40, "requests_per_day": 10}]
        async with (
            served(configuration(worker, store=store, tenants=tenants)) as gateway,
            gateway.http() as client,
            Caller(gateway.url) as streaming,
        ):
            streaming.ask(STREAMED)
            await streaming.until(b"\n\n")
            for _ in range(2):
                relay.stall()
                answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(5)))
                assert {answer.headers["x-gateway-degraded"] for answer in answers} == {"local"}
                relay.resume()
                while "gateway_store_degraded 0.0" not in await gateway.metrics():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                after = await client.post(COMPLETIONS, json=QUESTION)
                assert "x-gateway-degraded" not in after.headers
            on.set()
            assert b"data: [DONE]" in await streaming.until(b"[DONE]\n\n")
            await gateway.idle()
            await taken(redis, 0)
            granted = [line for line in gateway.log_lines() if line["outcome"] == "ok"]
            assert len(granted) == len(worker.requests) <= 10
            said = [record for record in caplog.records if "Redis" in record.getMessage()]
            assert len(said) < 10


@pytest.mark.case("L6")
async def test_stalls_in_a_row_grant_no_more_than_the_limit(
    shared_redis: RedisServer, redis_url: str
) -> None:
    async with Relay(shared_redis.port) as relay, FakeWorker() as worker:
        store = {"url": relay.url, "timeout_ms": 100}
        config = configuration(worker, store=store, tenants=[{"id": "acme", "requests_per_day": 10}])
        async with served(config) as gateway, gateway.http() as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
            for _ in range(3):  # with no admission between them that could tell what is left
                relay.stall()
                await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(5)))
                relay.resume()
                while "gateway_store_degraded 0.0" not in await gateway.metrics():
                    pass
            assert len(worker.requests) <= 10

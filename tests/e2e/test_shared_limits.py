"""Do limits hold across gateways that share a Redis, whatever requests, callers and Redis do?"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from tests.conftest import KEY, MODEL, Served, configuration, served, sha256
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, answer_of, plain_answer, response_head
from tests.redis_server import RedisServer
from tests.relay import Relay

GUARD_S = 60.0
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}


def shared(url: str, **store: Any) -> dict[str, Any]:
    return {"url": url, "timeout_ms": 2000, **store}


def of_acme(**limits: Any) -> list[dict[str, Any]]:
    return [{"id": "acme", **limits}]


def key_of(tenant: str, secret: str = KEY) -> dict[str, Any]:
    return {"id": f"{tenant}-1", "tenant": tenant, "sha256": sha256(secret)}


@asynccontextmanager
async def gateways(count: int, worker: FakeWorker, **sections: Any) -> AsyncIterator[list[Served]]:
    """So many, each as if in a process of its own, before one worker."""
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        config = configuration(worker, **sections)
        yield [await stack.enter_async_context(served(config)) for _ in range(count)]


async def ask(client: httpx.AsyncClient, body: object = QUESTION) -> httpx.Response:
    return await client.post(COMPLETIONS, json=body)


async def leases(redis: Redis) -> int:
    return int(await redis.zcard("gateway:{acme}:leases"))


async def become(value: int, look: Callable[[], Awaitable[int]]) -> None:
    """Only polling shows what is in Redis."""
    while await look() != value:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.mark.case("L2")
async def test_a_burst_over_four_gateways_is_admitted_up_to_the_limit_exactly(redis_url: str) -> None:
    tenants = of_acme(requests_per_minute=20)
    async with (
        FakeWorker() as worker,
        gateways(4, worker, store=shared(redis_url), tenants=tenants) as replicas,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(replica.http()) for replica in replicas]
        answers = await asyncio.gather(*(ask(client) for client in clients * 50))
        assert Counter(answer.status_code for answer in answers) == {200: 20, 429: 180}
        assert len(worker.requests) == 20


async def test_parallel_calls_never_spend_more_than_the_budget(redis_url: str) -> None:
    decided = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await decided.wait()
        await answer_of(93)(request, reply)

    async with (
        FakeWorker(held) as worker,
        gateways(2, worker, store=shared(redis_url), tenants=of_acme(tokens_per_minute=1000)) as replicas,
        replicas[0].http() as one,
        replicas[1].http() as two,
    ):
        body = {"model": MODEL, "prompt": list(range(7)), "max_tokens": 150}  # 157 reserved, 100 used
        calls = [asyncio.create_task(ask(client, body)) for client in [one, two] * 10]
        await worker.received(6)
        for refused in asyncio.as_completed(calls):
            assert (await refused).status_code == 429
            if sum(call.done() for call in calls) == 14:
                decided.set()
                break
        answers = await asyncio.gather(*calls)
        granted = [answer for answer in answers if answer.status_code == 200]
        assert len(worker.requests) == len(granted) == 6, "as many as fit with what each may use"
        later = [(await ask(one, body)).status_code for _ in range(4)]
        assert later == [200, 200, 200, 429], "what was not used has come back"


async def test_a_refusal_for_one_limit_spends_nothing_of_another(redis_url: str, redis: Redis) -> None:
    released = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await released.wait()
        await plain_answer(request, reply)

    tenants = of_acme(max_concurrency=1, requests_per_day=10)
    async with (
        FakeWorker(held) as worker,
        gateways(1, worker, store=shared(redis_url), tenants=tenants) as [gateway],
        gateway.http() as client,
    ):
        running = asyncio.create_task(ask(client))
        await worker.received(1)
        for _ in range(20):
            assert (await ask(client)).json()["error"]["type"] == "concurrency"
        released.set()
        assert (await running).status_code == 200
        await become(0, lambda: leases(redis))
        assert (await ask(client)).headers["x-ratelimit-remaining-requests"] == "8"


async def fails(request: Received, reply: Reply) -> None:
    await reply.json({"error": {"message": "no", "code": 500}}, 500)


async def refuses(request: Received, reply: Reply) -> None:
    await reply.json({"error": {"message": "no", "code": 400}}, 400)


async def resets(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    reply.reset()


async def never_answers(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def breaks_off(request: Received, reply: Reply) -> None:
    await reply.send(response_head(200, {"content-type": "text/event-stream", "content-length": "10"}))
    reply.close()


async def streams_and_stalls(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for _ in range(3):
        await reply.event(TOKEN)
    await reply.peer_closed()


WORKER_ENDINGS = [fails, refuses, resets, never_answers, breaks_off, streams_and_stalls]
JSON = {"content-type": "application/json"}
NO_REQUESTS = [b"{", b"[]", b'{"model":"no","prompt":"hi"}', b'{"model":"smollm2"}', b"\xff"]


async def leave_at_some_moment(url: str, rng: random.Random) -> None:
    async with Caller(url) as caller:
        caller.ask(rng.choice([QUESTION, STREAMED]))
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        rng.choice([Caller.leave, Caller.reset])(caller)


async def one_of_many(gateway: Served, client: httpx.AsyncClient, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.3:
        await leave_at_some_moment(gateway.url, rng)
    elif kind < 0.5:
        await client.post(COMPLETIONS, content=rng.choice(NO_REQUESTS), headers=JSON)
    else:
        await ask(client, rng.choice([QUESTION, STREAMED]))


@pytest.mark.case("L1")
@pytest.mark.parametrize("seed", [1, 2])
async def test_after_five_hundred_random_endings_no_lease_is_left_and_only_use_is_charged(
    redis_url: str, redis: Redis, seed: int
) -> None:
    rng = random.Random(seed)
    scripts = [rng.choice([plain_answer, *WORKER_ENDINGS]) for _ in range(600)]
    tokens, requests = 10_000, 1_000  # a day: one comes back in 9 and in 86 s
    tenants = of_acme(tokens_per_day=tokens, requests_per_day=requests, max_concurrency=1000)
    async with (
        FakeWorker(scripts) as worker,
        gateways(
            1,
            worker,
            store=shared(redis_url),
            tenants=tenants,
            upstream={"first_byte_timeout_s": 0.1, "gap_timeout_s": 0.1},
            fleet={"failures": 10**6},
        ) as [gateway],
        gateway.http() as client,
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(500):
                group.create_task(one_of_many(gateway, client, rng))
        await gateway.idle()
        await become(0, lambda: leases(redis))
        lines = gateway.log_lines()
        assert len(lines) == 500
        charged = [line["charged_tokens"] for line in lines if line["charged_tokens"] is not None]
        last = await client.post(COMPLETIONS, content=b"{", headers=JSON)
        spent = tokens - int(last.headers["x-ratelimit-remaining-tokens"])
        assert sum(charged) - 4 <= spent <= sum(charged)
        taken = requests - int(last.headers["x-ratelimit-remaining-requests"])
        assert len(charged) - 1 <= taken <= len(charged)
        answered = [line for line in lines if line["outcome"] == "ok"]
        assert sum(line["charged_tokens"] for line in answered) == COST * len(answered)
        assert len({line["outcome"] for line in lines}) >= 7, "many kinds of ending"


@pytest.mark.case("L3")
async def test_streams_are_charged_what_the_worker_says_wherever_its_usage_is_cut(redis_url: str) -> None:
    tenants = of_acme(tokens_per_day=10_000)
    async with (
        FakeWorker() as worker,
        gateways(1, worker, store=shared(redis_url), tenants=tenants) as [gateway],
        gateway.http() as client,
    ):
        for body in (QUESTION, STREAMED, {**STREAMED, "stream_options": {"include_usage": True}}):
            before = await remaining_tokens(client)
            assert (await ask(client, body)).status_code == 200
            await gateway.idle()
            assert before - await remaining_tokens(client) == COST


async def remaining_tokens(client: httpx.AsyncClient) -> int:
    return int((await client.post(COMPLETIONS, content=b"{")).headers["x-ratelimit-remaining-tokens"])


@pytest.mark.case("L3")
async def test_who_left_a_stream_pays_the_prompt_and_the_tokens_that_came(
    redis_url: str, redis: Redis
) -> None:
    tenants = of_acme(tokens_per_day=10_000, max_concurrency=5)
    async with (
        FakeWorker(streams_and_stalls) as worker,
        gateways(1, worker, store=shared(redis_url), tenants=tenants) as [gateway],
        gateway.http() as client,
    ):
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED)
            for _ in range(3):
                await caller.until(b"glad")
            caller.leave()
        await become(0, lambda: leases(redis))
        assert 10_000 - await remaining_tokens(client) == PROMPT_TOKENS + 3


@pytest.mark.case("L4")
async def test_the_sdk_sits_out_a_limit_by_itself(redis_url: str) -> None:
    """With its default retries; the limit is low enough for waits, and quick enough for a test."""
    async with (
        FakeWorker() as worker,
        gateways(
            1, worker, store=shared(redis_url), tenants=of_acme(requests_per_minute=60, max_concurrency=60)
        ) as [gateway],
        gateway.client(max_retries=2) as client,
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(60):
                group.create_task(client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=8))
        for _ in range(3):
            await client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=8)
        assert len(worker.requests) == 63


@pytest.mark.case("L6")
@pytest.mark.parametrize("policy", ["local", "closed", "open"])
async def test_a_frozen_redis_is_answered_by_the_policy_and_streams_go_on(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    released = asyncio.Event()

    async def long_stream(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await released.wait()
        await reply.event(TOKEN)
        await reply.done()

    expected = {"local": {200: 8, 429: 42}, "closed": {503: 50}, "open": {200: 50}}[policy]
    with RedisServer() as server:
        async with (
            FakeWorker([long_stream, *[plain_answer] * 200]) as worker,
            gateways(
                1,
                worker,
                store=shared(server.url, on_failure=policy, timeout_ms=100),
                tenants=of_acme(requests_per_day=10, max_concurrency=40),
            ) as [gateway],
            gateway.http() as client,
            Caller(gateway.url) as streaming,
        ):
            streaming.ask(STREAMED)
            await streaming.until(b"glad")
            await asyncio.to_thread(server.freeze)
            answers = await asyncio.gather(*(ask(client) for _ in range(50)))
            if policy == "local":  # the stream has taken one of the ten: of 8 there are 7.2 left
                expected = {200: 7, 429: 43}
            assert Counter(answer.status_code for answer in answers) == expected
            for answer in answers:
                assert answer.headers["x-gateway-degraded"] == policy
                if answer.status_code == 503:
                    assert answer.json()["error"]["code"] == "store_unavailable"
                    assert answer.headers["retry-after"] == "1"
            assert "gateway_store_degraded 1.0" in await gateway.metrics()
            released.set()
            await streaming.until(b"[DONE]")
            server.thaw()
            while "gateway_store_degraded 0.0" not in await gateway.metrics():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            after = await ask(client)
            spent = 1 + expected.get(200, 0)
            assert after.status_code == (429 if spent >= 10 else 200)
            assert "x-gateway-degraded" not in after.headers
            assert int(after.headers["x-ratelimit-remaining-requests"]) == max(0, 9 - spent)
            said = [record.getMessage() for record in caplog.records if "Redis" in record.getMessage()]
            of_limits = [line for line in said if "on_failure" in line or "limits are shared" in line]
            assert len(of_limits) == 2
            # What others have under way is told of too, and may be heard again a little later.
            assert len(said) - len(of_limits) <= 2


@pytest.mark.case("L6")
async def test_a_gateway_that_starts_while_redis_is_away_serves_by_the_policy() -> None:
    async with (
        FakeWorker() as worker,
        gateways(1, worker, store=shared("redis://127.0.0.1:9/0"), tenants=of_acme(requests_per_day=10)) as [
            gateway
        ],
        gateway.http() as client,
    ):
        answer = await ask(client)
        assert (answer.status_code, answer.headers["x-gateway-degraded"]) == (200, "local")


@pytest.mark.case("L7")
async def test_one_tenants_aborts_behind_a_slow_redis_cost_another_nothing(
    shared_redis: RedisServer, redis_url: str, redis: Redis
) -> None:
    """A reply that belongs to somebody who left must never be read as another's."""
    tenants = [{"id": "acme", "requests_per_day": 1}, {"id": "globex", "requests_per_day": 10**6}]
    rng = random.Random(7)
    other = "sk-test-globex-0123456789abcdefghijklmnopqrstuvwxyz"
    config = {"tenants": tenants, "keys": [key_of("acme"), key_of("globex", other)]}
    async with (
        Relay(shared_redis.port) as relay,
        FakeWorker() as worker,
        gateways(1, worker, store=shared(relay.url), **config) as [gateway],
        gateway.http() as refused,
        gateway.http(other) as served_one,
    ):
        relay.latency_ms = 50
        assert (await ask(refused)).status_code == 200

        async def abort() -> None:
            for _ in range(10):
                async with Caller(gateway.url) as caller:
                    caller.ask(QUESTION)
                    await asyncio.sleep(rng.uniform(0, 0.1))  # the round trip takes half of that
                    caller.leave()

        async def work() -> list[int]:
            return [(await ask(served_one)).status_code for _ in range(10)]

        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(abort())
            working = [group.create_task(work()) for _ in range(4)]
        assert Counter(status for task in working for status in task.result()) == {200: 40}
        relay.latency_ms = 0
        await gateway.idle()
        await become(0, lambda: leases(redis))
        connected = await redis.client_list(_type="normal")
        assert len(connected) < 10, "one for limits, few for keys, and this test's own"
        assert (await ask(refused)).status_code == 429

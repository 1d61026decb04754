"""Do a tenant's limits hold, tell the truth about when to come back, and cost the refused nothing?"""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.observed import observed
from tests.fakes import FakeWorker, Received, Reply, answer_of, plain_answer, response_head

pytestmark = pytest.mark.usefixtures("either_lane")

TWENTY = {"model": MODEL, "prompt": list(range(7))}  # without max_tokens; the worker takes 7 + 13


def limits(**of: int) -> list[dict[str, Any]]:
    return [{"id": "acme", **of}]


@pytest.mark.case("L4")
async def test_requests_beyond_the_minute_are_refused_until_the_stated_moment_and_not_after() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=limits(requests_per_minute=2)) as gateway,
        gateway.http() as client,
    ):

        async def ask() -> httpx.Response:
            return await client.post(COMPLETIONS, json=QUESTION)

        remaining = [(await ask()).headers["x-ratelimit-remaining-requests"] for _ in range(2)]
        assert remaining == ["1", "0"]
        refused = await ask()
        error = refused.json()["error"]
        assert (refused.status_code, error["type"], error["code"]) == (429, "requests", "rate_limit_exceeded")
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"] == "1m0s"
        assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("30", "30000")
        assert "x-should-retry" not in refused.headers
        for _ in range(50):
            assert (await ask()).status_code == 429
        gateway.clock.now_s = 29.9
        assert (await ask()).headers["retry-after"] == "1"
        gateway.clock.now_s = 30.0
        assert (await ask()).status_code == 200
        assert len(worker.requests) == 3
        assert await gateway.metric("gateway_limited_total", kind="requests") == 52
        assert await gateway.metric("gateway_requests_total", outcome="rate_limit_exceeded") == 52


@pytest.mark.case("L5")
async def test_tokens_are_charged_as_used_and_refused_calls_cost_nothing() -> None:
    async with (
        FakeWorker(answer_of(13)) as worker,
        observed(worker, tenants=limits(tokens_per_minute=100)) as gateway,
        gateway.http() as client,
    ):

        async def ask() -> httpx.Response:
            return await client.post(COMPLETIONS, json=TWENTY)

        for _ in range(5):  # 16 tokens by default, so 23 are reserved while there are so many, and 20 charged
            assert (await ask()).status_code == 200
        refused = await ask()
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "tokens")
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        assert (refused.headers["retry-after-ms"], refused.headers["retry-after"]) == ("4800", "5")
        for _ in range(50):
            assert (await ask()).status_code == 429
        gateway.clock.now_s = 4.8  # for the prompt and one token more
        assert (await ask()).status_code == 200
        assert len(worker.requests) == 6


@pytest.mark.case("L5")
async def test_a_budget_below_one_long_answer_is_good_for_many_short_ones() -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        FakeWorker(answer_of(13)) as worker,
        observed(worker, tenants=limits(tokens_per_minute=100)) as gateway,
        gateway.http() as client,
    ):
        statuses = [(await client.post("/v1/chat/completions", json=chat)).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]


@pytest.mark.case("L5")
async def test_a_first_call_without_a_maximum_fits_a_small_budget() -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=limits(tokens_per_minute=100)) as gateway,
        gateway.http() as client,
    ):
        answer = await client.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 200
        assert (await gateway.metric("gateway_tokens_total", direction="completion")) == 8
        refused = await client.post(COMPLETIONS, json={**QUESTION, "n": 99})
        assert refused.headers["x-ratelimit-remaining-tokens"] == str(100 - COST)


@pytest.mark.case("L5")
async def test_a_request_that_can_never_fit_is_refused_for_good() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=limits(tokens_per_minute=100)) as gateway,
        gateway.client(max_retries=2) as client,
    ):
        with pytest.raises(openai.RateLimitError) as refusal:
            await client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=1500)
        headers = refusal.value.response.headers
        assert headers["x-should-retry"] == "false"
        assert headers["x-ratelimit-remaining-tokens"] == "100"
        await gateway.idle()
        assert len(gateway.log_lines()) == 1  # the SDK did not try again
        assert worker.requests == []


@pytest.mark.case("L3")
@pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
async def test_streams_and_plain_calls_meet_the_token_limit_at_the_same_point(body: object) -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=limits(tokens_per_minute=50)) as gateway,
        gateway.http() as client,
    ):
        statuses = [(await client.post(COMPLETIONS, json=body)).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert len(worker.requests) == 3


async def test_calls_beyond_the_concurrency_limit_are_refused_and_spend_no_request() -> None:
    released = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await released.wait()
        await plain_answer(request, reply)

    async with (
        FakeWorker(held) as worker,
        observed(worker, tenants=limits(max_concurrency=2, requests_per_minute=10)) as gateway,
        gateway.http() as client,
    ):
        running = [asyncio.create_task(client.post(COMPLETIONS, json=QUESTION)) for _ in range(2)]
        await worker.received(2)
        refused = await client.post(COMPLETIONS, json=QUESTION)
        error = refused.json()["error"]
        assert (refused.status_code, error["type"]) == (429, "concurrency")
        assert error["code"] == "rate_limit_exceeded"
        assert "retry-after" in refused.headers
        assert refused.headers["x-ratelimit-remaining-requests"] == "8"
        released.set()
        await asyncio.gather(*running)
        again = await client.post(COMPLETIONS, json=QUESTION)
        assert (again.status_code, again.headers["x-ratelimit-remaining-requests"]) == (200, "7")
        assert await gateway.metric("gateway_limited_total", kind="concurrency") == 1


@pytest.mark.case("L2")
async def test_a_burst_is_admitted_up_to_the_limit_exactly() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=limits(requests_per_minute=20)) as gateway,
        gateway.http() as client,
    ):
        answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(80)))
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (20, 60)
        assert len(worker.requests) == 20


@pytest.mark.case("L1")
async def test_whatever_ends_a_request_its_slot_is_free_for_the_next() -> None:
    async def refuse(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "no", "code": 400}}, 400)

    async def fail(request: Received, reply: Reply) -> None:
        await reply.json({}, 500)

    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({}, 503)

    async def reset(request: Received, reply: Reply) -> None:
        await reply.stream_head()  # without it, a kept connection that ends would be replaced
        reply.reset()

    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async def cut(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "text/event-stream", "content-length": "10"}))
        reply.close()

    bad = [refuse, fail, busy, reset, silent, cut]
    scripts = [script for ending in bad for script in (ending, plain_answer)]
    async with (
        FakeWorker([*scripts, silent, plain_answer]) as worker,
        observed(
            worker, tenants=limits(max_concurrency=1), upstream={"first_byte_timeout_s": 0.2}
        ) as gateway,
        gateway.http() as client,
    ):
        for _ in bad:
            assert (await client.post(COMPLETIONS, json=STREAMED)).status_code >= 400
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
        for wrong in (b"{", b'{"model":"no","prompt":"hi"}', b'{"model":"smollm2"}'):
            async with Caller(gateway.url) as caller:
                caller.ask(wrong)
                assert (await caller.head())[0] >= 400
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED)
            await worker.received(len(scripts) + 1)
            caller.leave()
            await gateway.reaches(1, "gateway_requests_total", outcome="client_gone")
        assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200

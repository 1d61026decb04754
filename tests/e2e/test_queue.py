"""Is the queue bounded, fair in its order, honest about its length, and left by whoever gives up?"""

import asyncio
import contextlib
from typing import Any

import httpx
import pytest

from tests.conftest import KEY, sha256
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, Caller
from tests.e2e.gates import Gate
from tests.e2e.observed import STEADY_PROBES, TENANT, Observed, limited, observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

OTHER_KEY = "sk-test-of-the-other-tenant"
TWO_TENANTS: dict[str, Any] = {
    "tenants": [TENANT, {"id": "other"}],
    "keys": [
        {"id": "acme-1", "tenant": "acme", "sha256": sha256(KEY)},
        {"id": "other-1", "tenant": "other", "sha256": sha256(OTHER_KEY)},
    ],
}


def asked(client: httpx.AsyncClient, user: str = "", **more: object) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(client.post(COMPLETIONS, json={**QUESTION, "user": user, **more}))


async def queued(gateway: Observed, count: int) -> None:
    await gateway.reaches(count, "gateway_queue_depth")


@pytest.mark.case("Q1")
async def test_who_waits_is_served_in_order_and_who_gave_up_never_reaches_a_worker() -> None:
    gate = Gate()
    async with (
        FakeWorker([gate, plain_answer]) as worker,
        observed(worker, workers=limited(worker)) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        client = await stack.enter_async_context(gateway.http())
        first = asked(client, "a")
        await worker.received(1)
        leaving = [await stack.enter_async_context(Caller(gateway.url)) for _ in "bc"]
        for count, caller in enumerate(leaving, 1):
            caller.ask(QUESTION)
            await queued(gateway, count)
        waiting = [asked(client, "d")]
        await queued(gateway, 3)
        waiting.append(asked(client, "e"))
        await queued(gateway, 4)
        for caller in leaving:
            caller.leave()
        await queued(gateway, 2)
        gate.open.set()
        answers = await asyncio.gather(first, *waiting)
        assert [answer.status_code for answer in answers] == [200] * 3
        assert int(answers[1].headers["x-gateway-queue-ms"]) >= 0
        assert [request.json()["user"] for request in worker.requests] == ["a", "d", "e"]
        await gateway.ended("ok", "ok", "ok", "client_gone", "client_gone", requests=3, tokens=3 * COST)
        assert await gateway.metric("gateway_queue_wait_seconds_count", outcome="client_gone") == 2


async def test_a_place_goes_to_the_next_when_its_holder_leaves() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with (
        FakeWorker([silent, plain_answer]) as worker,
        observed(worker, workers=limited(worker)) as gateway,
    ):
        async with Caller(gateway.url) as holder, gateway.http() as client:
            holder.ask(QUESTION)
            await worker.received(1)
            waiting = asked(client)
            await queued(gateway, 1)
            holder.leave()
            assert (await waiting).status_code == 200
        await gateway.ended("ok", "client_gone", requests=2, tokens=COST + PROMPT_TOKENS)


@pytest.mark.case("Q1")
async def test_hundreds_who_leave_the_queue_leave_nothing_behind() -> None:
    gate = Gate()
    async with (
        FakeWorker([gate, plain_answer]) as worker,
        observed(
            worker, workers=limited(worker), admission={"tenant_queue_share": 1.0, "max_queued": 300}
        ) as gateway,
        gateway.http() as client,
    ):
        first = asked(client)
        await worker.received(1)
        async with contextlib.AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(Caller(gateway.url)) for _ in range(300)]
            for caller in callers:
                caller.ask(QUESTION)
            await queued(gateway, 300)
            for caller in callers:
                caller.leave()
            await queued(gateway, 0)
        gate.open.set()
        assert (await first).status_code == 200
        assert (await asked(client)).status_code == 200
        await gateway.ended("ok", "ok", *["client_gone"] * 300, requests=2, tokens=2 * COST)
        assert len(worker.requests) == 2


@pytest.mark.case("Q2", "L4")
async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back() -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(
            worker, workers=limited(worker), admission={"max_queued": 2, "tenant_queue_share": 1.0}
        ) as gateway,
    ):
        async with gateway.http() as client:
            running = [asked(client)]
            await worker.received(1)
            for count in (1, 2):
                running.append(asked(client))
                await queued(gateway, count)
            refused = await asked(client)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
            assert refused.json()["error"]["type"] == "server_error"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert int(refused.headers["retry-after-ms"]) <= 1000 * int(refused.headers["retry-after"])
            gate.open.set()
            assert [(await answer).status_code for answer in running] == [200] * 3
        await gateway.ended("ok", "ok", "ok", "server_is_overloaded", requests=3, tokens=3 * COST)


async def test_who_waits_too_long_is_refused_and_charged_nothing() -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(worker, workers=limited(worker), admission={"max_wait_s": 0.2}) as gateway,
    ):
        async with gateway.http() as client:
            running = asked(client)
            await worker.received(1)
            refused = await asked(client)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
            assert "retry-after" in refused.headers
            gate.open.set()
            assert (await running).status_code == 200
        await gateway.ended("ok", "server_is_overloaded", requests=1, tokens=COST)
        assert len(worker.requests) == 1


@pytest.mark.case("Q2")
async def test_one_tenant_cannot_fill_the_whole_queue() -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(
            worker,
            workers=limited(worker),
            admission={"max_queued": 4, "tenant_queue_share": 0.5},
            **TWO_TENANTS,
        ) as gateway,
    ):
        async with gateway.http() as client, gateway.http(OTHER_KEY) as other:
            running = [asked(client)]
            await worker.received(1)
            for count in (1, 2):
                running.append(asked(client))
                await queued(gateway, count)
            refused = await asked(client)
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "queue_share")
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            running.append(asked(other))
            await queued(gateway, 3)
            gate.open.set()
            assert [(await answer).status_code for answer in running] == [200] * 4
        assert await gateway.metric("gateway_limited_total", kind="queue_share") == 1
        await gateway.ended(*["ok"] * 4, "rate_limit_exceeded", requests=3, tokens=3 * COST)


async def test_who_waits_for_a_worker_that_dies_is_told_so() -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(worker, workers=limited(worker), fleet={"failures": 1}) as gateway,
    ):
        async with gateway.http() as client:
            running = asked(client)
            await worker.received(1)
            waiting = asked(client)
            await queued(gateway, 1)
            await worker.stop()
            assert (await running).json()["error"]["code"] == "worker_failed"
            refused = await waiting
        assert refused.status_code in (502, 503)
        assert refused.json()["error"]["code"] in ("no_worker", "worker_failed")
        await gateway.ended("worker_failed", refused.json()["error"]["code"], requests=0, tokens=0)


async def test_the_sdk_comes_back_unaided_after_the_queue_was_full() -> None:
    gate = Gate()
    async with (
        FakeWorker([gate, plain_answer]) as worker,
        observed(
            worker, workers=limited(worker), admission={"max_queued": 0}, fleet=STEADY_PROBES
        ) as gateway,
    ):
        async with gateway.http() as client, gateway.client(max_retries=1) as sdk:
            running = asked(client)
            await worker.received(1)
            retried = asyncio.gather(sdk.completions.with_raw_response.create(**QUESTION))
            await gateway.reaches(1, "gateway_requests_total", outcome="server_is_overloaded")
            gate.open.set()
            assert (await running).status_code == 200
            assert [answer.retries_taken for answer in await retried] == [1]
        await gateway.ended("ok", "ok", "server_is_overloaded", requests=2, tokens=2 * COST)


async def streaming(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


@pytest.mark.case("Q3")
async def test_a_second_long_prompt_waits_outside_while_short_ones_pass_it() -> None:
    first = Gate()

    async def reads_long(request: Received, reply: Reply) -> None:
        await first.open.wait()  # its prompt takes a while
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]})
        await reply.peer_closed()

    long = {**QUESTION, "prompt": list(range(1500)), "stream": True}
    async with (
        FakeWorker([reads_long, plain_answer, streaming]) as worker,
        observed(worker, routing={"long_prompt_tokens": 1000}) as gateway,
        Caller(gateway.url) as one,
        Caller(gateway.url) as two,
        gateway.http() as client,
    ):
        one.ask(long)
        await worker.received(1)
        two.ask(long)
        await queued(gateway, 1)
        assert (await asked(client)).status_code == 200
        assert len(worker.requests) == 2, "the second long prompt is still outside"
        first.open.set()
        await worker.received(3)  # the first has its first token
        assert await gateway.metric("gateway_queue_depth") == 0


async def test_a_long_prompt_whose_answer_comes_whole_counts_as_read_after_a_while() -> None:
    gate = Gate()
    long = {**QUESTION, "prompt": list(range(1500))}
    async with (
        FakeWorker(gate) as worker,
        observed(worker, routing={"long_prompt_tokens": 1000}) as gateway,
        gateway.http() as client,
    ):
        both = [asked(client, prompt=long["prompt"]) for _ in range(2)]
        await worker.received(2)  # neither has been answered
        gate.open.set()
        assert [(await one).status_code for one in both] == [200, 200]


@pytest.mark.case("Q3")
async def test_a_tenants_burst_keeps_nobody_else_waiting_behind_it() -> None:
    gate = Gate()
    async with (
        FakeWorker([gate, *[plain_answer] * 30]) as worker,
        observed(worker, workers=limited(worker), **TWO_TENANTS) as gateway,
        gateway.http() as client,
        gateway.http(OTHER_KEY) as other,
    ):
        burst = [asked(client, f"burst-{n}") for n in range(20)]
        await queued(gateway, 19)
        await asyncio.gather(*(_open_after(gate, gateway, 20), asked(other, "other")))
        await asyncio.gather(*burst)
        order = [request.json()["user"] for request in worker.requests]
        assert order.index("other") <= 2


async def _open_after(gate: Gate, gateway: Observed, waiting: int) -> None:
    await queued(gateway, waiting)
    gate.open.set()

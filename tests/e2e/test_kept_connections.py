"""Do connections that are kept, cancelled or closed at the worst moment cost a call or a place?"""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from gateway.settings import Server
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.observed import limited, observed
from tests.fakes import FakeWorker, Received, Reply, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

PLACES = 8
CALLS = 200


@pytest.mark.case("C1")
async def test_a_thousand_cancelled_calls_cost_neither_a_place_nor_a_connection() -> None:
    rng = random.Random(3)

    async def thinking(request: Received, reply: Reply) -> None:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        await plain_answer(request, reply)

    async def impatient(url: str) -> None:
        for _ in range(64):
            async with Caller(url) as caller:
                caller.ask(rng.choice([QUESTION, STREAMED]))
                for _ in range(rng.randrange(30)):  # the moment of leaving is what varies
                    await asyncio.sleep(0)
                rng.choice([Caller.leave, Caller.reset])(caller)

    async with (
        FakeWorker(thinking) as worker,
        observed(
            worker, workers=limited(worker, max_concurrency=PLACES), tenants=[{"id": "acme"}]
        ) as gateway,
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * PLACES):
                group.create_task(impatient(gateway.url))
        lines = await gateway.idle_lines()
        cut = [line for line in lines if line["outcome"] == "client_gone"]
        assert len(cut) > len(lines) // 2, "most left in time"
        async with gateway.http() as client:
            calls = (client.post(COMPLETIONS, json=QUESTION) for _ in range(PLACES + 10))
            answers = await asyncio.gather(*calls)
        assert [answer.status_code for answer in answers] == [200] * (PLACES + 10)
        await gateway.idle()
        assert await gateway.metric("gateway_in_flight") == 0
        await worker.keeps(PLACES)


@pytest.mark.case("C2")
async def test_a_worker_that_closes_kept_connections_at_any_moment_executes_each_call_once() -> None:
    rng = random.Random(5)
    executed: list[str] = []
    kept: set[int] = set()
    ended: set[int] = set()
    unanswered = 0

    async def closing(request: Received, reply: Reply) -> None:
        nonlocal unanswered
        if request.connection in ended or (request.connection in kept and rng.random() < 0.3):
            unanswered += 1
            reply.close()  # it was about to, as the request came
            return
        kept.add(request.connection)
        executed.append(request.json()["user"])
        await plain_answer(request, reply)
        if rng.random() < 0.3:
            for _ in range(rng.randrange(10)):
                await asyncio.sleep(0)
            ended.add(request.connection)
            reply.close()

    async with FakeWorker(closing) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for number in range(CALLS):
                answer = await client.post(COMPLETIONS, json={**QUESTION, "user": str(number)})
                assert answer.status_code == 200
        assert executed == [str(number) for number in range(CALLS)]
        assert unanswered > CALLS // 10
        await gateway.ended(*["ok"] * CALLS, requests=CALLS, tokens=CALLS * COST)
        assert await gateway.metric("gateway_worker_failures_total") == 0


@pytest.mark.case("C2")
async def test_an_idle_connection_to_a_worker_is_given_up_before_the_worker_does() -> None:
    async with FakeWorker() as worker, observed(worker, upstream={"idle_s": 0.1}) as gateway:
        async with gateway.http() as client:
            for count in (1, 2, 3):
                assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
                await worker.closed_by_peer(count)
        assert [request.connection for request in worker.requests] == sorted(
            {request.connection for request in worker.requests}
        )


@pytest.mark.case("C2")
async def test_how_long_a_caller_s_idle_connection_is_kept_is_configured() -> None:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(FakeWorker())
        brief = await stack.enter_async_context(observed(worker, server={"keep_alive_s": 0.5}))
        usual = await stack.enter_async_context(observed(worker))
        kept = await stack.enter_async_context(Caller(usual.url))
        closed = await stack.enter_async_context(Caller(brief.url))
        for caller in (kept, closed):
            caller.ask(QUESTION)
            assert (await caller.answer())[0] == 200
        assert await closed.rest() == b""
        kept.ask(QUESTION)  # it has been idle for longer
        assert (await kept.answer())[0] == 200
    assert Server().keep_alive_s > 60  # of common balancers

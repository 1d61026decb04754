"""Does a burst of a thousand requests at once get a thousand answers, and leave nothing behind?"""

import asyncio
import gc
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from gateway.protocol import GatewayProtocol
from tests.conftest import KEY, MODEL, configuration
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.observed import POLL_S, STEADY_PROBES, limited, observed
from tests.e2e.program import program
from tests.fakes import FakeWorker, Received, Reply, plain_answer
from tests.vllm_answers import TOKEN

pytestmark = pytest.mark.usefixtures("either_lane")

BURST = 1000
BURST_GUARD_S = 100.0  # the SDK itself takes seconds of CPU for a thousand requests
WARM_UPS = 2  # until the allocator's pools, which do not shrink, have stopped growing
RESIDENT = "process_resident_memory_bytes"


async def fire(url: str) -> list[str | None]:
    """The texts of a burst's answers."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=BURST_GUARD_S) as client:

        async def ask() -> str | None:
            answer = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=8
            )
            return answer.choices[0].message.content

        return await asyncio.gather(*(ask() for _ in range(BURST)))


async def warm_up(url: str) -> None:
    """The same load without the SDK, which would take most of the time."""

    async def ask() -> None:
        async with Caller(url) as caller:
            caller.ask(QUESTION)
            assert (await caller.answer())[0] == 200

    await asyncio.gather(*(ask() for _ in range(BURST)))


@pytest.mark.case("C4")
async def test_a_thousand_requests_at_once_are_all_answered_and_the_memory_comes_back(tmp_path: Path) -> None:
    async with FakeWorker() as first, FakeWorker() as second:
        config = configuration(
            first,
            second,
            workers=limited(first, second, max_concurrency=128),
            admission={"tenant_queue_share": 1.0},
            fleet=STEADY_PROBES,
        )
        async with program(config, tmp_path, BURST_GUARD_S) as gateway:
            for _ in range(WARM_UPS):
                await warm_up(gateway.url)
            before = await gateway.metric(RESIDENT)
            # in a thread, as the SDK keeps its loop so busy that workers in the same would look dead
            answers = await asyncio.to_thread(asyncio.run, fire(gateway.url))
            assert answers == [8 * TOKEN] * BURST
            await gateway.reaches((WARM_UPS + 1) * BURST, "gateway_requests_total")
            assert await gateway.metric("gateway_in_flight") == 0
            assert await gateway.metric("gateway_queue_depth") == 0
            assert await gateway.metric(RESIDENT) <= 1.1 * before
            assert len(first.requests) + len(second.requests) == (WARM_UPS + 1) * BURST
            assert min(len(first.requests), len(second.requests)) > BURST


def connections() -> int:
    """How many callers' connections there are in memory."""
    return sum(issubclass(type(thing), GatewayProtocol) for thing in gc.get_objects())


async def test_a_connection_that_has_ended_needs_no_garbage_collector() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        gc.collect()
        gc.disable()
        try:
            before = connections()
            for body in (QUESTION, STREAMED, {}):
                async with Caller(gateway.url) as caller:
                    caller.ask(body, headers={"connection": "close"})
                    assert await caller.rest()
            while connections() > before:  # noqa: ASYNC110 - nothing tells of its end but its absence
                await asyncio.sleep(POLL_S)
        finally:
            gc.enable()


@pytest.mark.case("C4", "Q2")
@pytest.mark.parametrize(
    ("share", "served", "status", "code"),
    [(0.25, 4 + 20, 429, "rate_limit_exceeded"), (1.0, 4 + 40, 503, "server_is_overloaded")],
    ids=["by the tenant's share", "by the whole queue"],
)
async def test_a_burst_beyond_the_queue_is_refused_with_a_time_to_come_back(
    share: float, served: int, status: int, code: str
) -> None:
    opened = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await opened.wait()
        await plain_answer(request, reply)

    async with (
        FakeWorker(held) as worker,
        observed(
            worker,
            workers=limited(worker, max_concurrency=4),
            admission={"max_queued": 40, "tenant_queue_share": share},
        ) as gateway,
    ):
        async with gateway.http() as client:
            asked = [asyncio.create_task(client.post(COMPLETIONS, json=QUESTION)) for _ in range(100)]
            await gateway.reaches(100 - served, "gateway_requests_total")
            opened.set()
            answers = await asyncio.gather(*asked)
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) == 100 - served
        for answer in refused:
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        ends = [*["ok"] * served, *[code] * (100 - served)]
        await gateway.ended(*ends, requests=served, tokens=served * COST)
        assert len(worker.requests) == served


@pytest.mark.case("C4")
async def test_the_sdk_s_retries_bring_a_whole_burst_through_a_small_queue() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, workers=limited(worker, max_concurrency=2), admission={"max_queued": 8}) as gateway,
        gateway.client(max_retries=10) as client,
    ):
        answers = await asyncio.gather(
            *(client.completions.create(**QUESTION) for _ in range(20)), return_exceptions=True
        )
        assert not [answer for answer in answers if isinstance(answer, openai.APIError)]
        assert len(worker.requests) == 20

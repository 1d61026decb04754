"""Does a burst of a thousand requests at once get a thousand answers, and leave nothing behind?"""

import asyncio
from collections import Counter
from pathlib import Path

import openai
from openai import AsyncOpenAI

from tests.conftest import MODEL, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import limited, observed
from tests.e2e.program import program
from tests.fakes import FakeWorker
from tests.vllm_answers import TOKEN

BURST = 1000
RESIDENT = "process_resident_memory_bytes"


async def fire(client: AsyncOpenAI) -> list[str | None]:
    """The texts of a burst's answers."""

    async def ask() -> str | None:
        answer = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=8
        )
        return answer.choices[0].message.content

    return await asyncio.gather(*(ask() for _ in range(BURST)))


async def test_a_thousand_requests_at_once_are_all_answered_and_the_memory_comes_back(tmp_path: Path) -> None:
    async with FakeWorker() as first, FakeWorker() as second:
        config = configuration(
            first,
            second,
            workers=limited(first, second, max_concurrency=128),
            admission={"tenant_queue_share": 1.0},
        )
        async with program(config, tmp_path) as gateway, gateway.client() as client:
            resident = []
            for burst in (1, 2, 3):  # the first one fills the allocator's pools, which do not shrink
                assert await fire(client) == [8 * TOKEN] * BURST
                await gateway.reaches(burst * BURST, "gateway_requests_total")
                assert await gateway.metric("gateway_in_flight") == 0
                assert await gateway.metric("gateway_queue_depth") == 0
                resident.append(await gateway.metric(RESIDENT))
            assert len(first.requests) + len(second.requests) == 3 * BURST
    assert resident[2] <= 1.1 * resident[0]


async def test_overload_is_told_by_429_and_503_with_a_time_to_come_back_and_never_by_500() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, workers=limited(worker, max_concurrency=4), admission={"max_queued": 40}) as gateway,
        gateway.http() as client,
    ):
        answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(200)))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses.keys() <= {200, 429, 503}
        assert statuses[200] >= 4
        assert statuses[429] + statuses[503] > 0
        for answer in answers:
            if answer.status_code != 200:
                assert 1 <= int(answer.headers["retry-after"]) <= 60
                assert answer.json()["error"]["code"] in ("rate_limit_exceeded", "server_is_overloaded")
        assert len(worker.requests) == statuses[200]
        codes = [answer.json()["error"]["code"] for answer in answers if answer.status_code != 200]
        ends = [*["ok"] * statuses[200], *codes]
        await gateway.ended(*ends, requests=statuses[200], tokens=15 * statuses[200])


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

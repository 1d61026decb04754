"""Does the counting worker answer like vLLM, and know who is there?"""

import asyncio

import httpx
import openai
import pytest

from benchmarks.footprint.streams import chat
from benchmarks.footprint.worker import PROMPT_TOKENS, TOKEN
from benchmarks.outage.caller import ask
from benchmarks.outage.worker import MODEL, CountingWorker


async def test_the_sdk_gets_whole_answers_plain_and_streamed() -> None:
    async with (
        CountingWorker(0.0) as worker,
        openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="none", max_retries=0) as client,
    ):
        plain = await client.chat.completions.create(
            model=MODEL, max_tokens=3, messages=[{"role": "user", "content": "a"}]
        )
        stream = await client.chat.completions.create(
            model=MODEL,
            max_tokens=3,
            messages=[{"role": "user", "content": "b"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = [chunk async for chunk in stream]
        without = await client.chat.completions.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "b"}], stream=True
        )
        bare = [chunk async for chunk in without]
    assert plain.choices[0].message.content == TOKEN * 3
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", TOKEN, TOKEN, TOKEN]
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (PROMPT_TOKENS, 3)
    assert [chunk.usage for chunk in bare] == [None, None]
    assert (worker.visits.begun("a"), worker.visits.begun("b")) == (1, 2)
    assert [change.by for change in worker.visits.changes] == [1, -1] * 3


async def test_it_is_found_well_and_tells_its_model() -> None:
    async with (
        CountingWorker(0.0) as worker,
        httpx.AsyncClient(base_url=worker.url, trust_env=False) as client,
    ):
        well = await client.get("/health")
        models = await client.get("/v1/models")
        unknown = await client.get("/metrics")
    assert (well.status_code, models.status_code, unknown.status_code) == (200, 200, 404)
    assert [card["id"] for card in models.json()["data"]] == [MODEL]


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_a_visit_ends_with_the_connection_or_the_worker(hangs_up: bool) -> None:
    async with CountingWorker(0.001) as worker:
        asked = asyncio.create_task(ask(worker.url, "none", chat(MODEL, 1_000_000, "endless", stream=True)))
        await worker.visits.come("endless", 1)
        if hangs_up:
            asked.cancel()
            async with asyncio.timeout(60):
                while len(worker.visits.changes) < 2:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
    if not hangs_up:
        assert not (await asked).is_whole
    assert [change.by for change in worker.visits.changes] == [1, -1]

"""What does an application make of a stream that the network or the worker has ill-treated?"""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.conftest import MODEL
from tests.e2e.observed import observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, Script

pytestmark = pytest.mark.usefixtures("either_lane")

CHAT: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
PIECES = ["你好世界", "🦜🏽", " é\u2028", "😀 \\n", "ｶﾅ"]
USAGE = {"prompt_tokens": 7, "total_tokens": 400, "completion_tokens": 393}


def event(text: str) -> dict[str, object]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }


@pytest.mark.case("S3")
@pytest.mark.parametrize("as_ascii", [False, True], ids=["as characters", "as escapes"])
async def test_text_of_many_scripts_that_comes_byte_by_byte_is_the_worker_s(as_ascii: bool) -> None:
    events: list[dict[str, Any]] = [event(text) for text in PIECES]
    events.append({**event(""), "choices": [], "usage": USAGE})
    lines = [json.dumps(each, ensure_ascii=as_ascii) for each in events]
    content = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()

    async def drip(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for position in range(len(content)):
            await reply.chunk(content[position : position + 1])
            await asyncio.sleep(0)  # lets the gateway read each byte by itself
        await reply.send(b"0\r\n\r\n")

    async with FakeWorker(drip) as worker, observed(worker) as gateway:
        async with gateway.client() as client:
            chunks = [chunk async for chunk in await client.chat.completions.create(**CHAT)]
            asked = {**CHAT, "stream_options": {"include_usage": True}}
            counted = [chunk async for chunk in await client.chat.completions.create(**asked)]
        assert [chunk.choices[0].delta.content for chunk in chunks] == PIECES
        assert [chunk.choices[0].delta.content for chunk in counted[:-1]] == PIECES
        assert counted[-1].usage is not None
        assert counted[-1].usage.total_tokens == 400
        await gateway.ended("ok", "ok", requests=2, tokens=2 * 400)


async def reset(request: Received, reply: Reply) -> None:
    reply.reset()


async def end_inside_a_chunk(request: Received, reply: Reply) -> None:
    await reply.send(b'40\r\ndata: {"choices"')
    reply.close()


async def end_without_done(request: Received, reply: Reply) -> None:
    await reply.send(b"0\r\n\r\n")


async def broken(failing: Script) -> tuple[list[ChatCompletionChunk], Exception | None, str]:
    """What the SDK makes of a stream that fails so after three tokens; and how it is counted."""
    arrived = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for text in PIECES[:3]:
            await reply.event(event(text))
        await arrived.wait()
        await failing(request, reply)

    chunks: list[ChatCompletionChunk] = []
    failure: Exception | None = None
    async with FakeWorker(script) as worker, FakeWorker() as other, observed(worker, other) as gateway:
        async with gateway.client(max_retries=2) as client:
            stream = await client.chat.completions.create(**CHAT)
            try:
                async for chunk in stream:
                    chunks.append(chunk)
                    if len(chunks) == 3:
                        arrived.set()
            except openai.APIError as error:
                failure = error
        [line] = await gateway.idle_lines()
        assert (len(worker.requests), len(other.requests)) == (1, 0), "and nobody sends it again"
        assert line["charged_tokens"] in (PROMPT_TOKENS + 3, line["estimated_prompt_tokens"] + 3)
    return chunks, failure, line["outcome"]


@pytest.mark.case("S5")
@pytest.mark.parametrize("failing", [reset, end_inside_a_chunk])
async def test_an_answer_that_breaks_off_raises_after_what_came_of_it(failing: Script) -> None:
    chunks, failure, outcome = await broken(failing)
    assert [chunk.choices[0].delta.content for chunk in chunks] == PIECES[:3]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 3
    assert isinstance(failure, openai.APIError)
    assert (failure.code, outcome) == ("worker_failed", "worker_failed")


@pytest.mark.case("S5")
async def test_of_an_answer_that_ends_too_early_no_end_is_invented() -> None:
    chunks, failure, outcome = await broken(end_without_done)
    assert [chunk.choices[0].delta.content for chunk in chunks] == PIECES[:3]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 3
    assert (failure, outcome) == (None, "incomplete")

"""Does a stream arrive as the worker made it, at once, and is it counted and charged as what it was?"""

import asyncio
import json

import pytest

from tests.conftest import MODEL
from tests.e2e.callers import CHAT, COMPLETIONS, COST, QUESTION, STREAMED
from tests.e2e.observed import observed
from tests.fakes import (
    PROMPT_TOKENS,
    FakeWorker,
    Received,
    Reply,
    answer_of,
    plain_answer,
    sse_event,
)

pytestmark = pytest.mark.usefixtures("either_lane")

TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "total_tokens": 10, "completion_tokens": 3}}


@pytest.mark.case("S3")
async def test_bytes_arrive_unchanged_however_the_network_cuts_them() -> None:
    events = [{"choices": [{"index": 0, "text": text}]} for text in ("你好", "🦜🏽", " é", "\\u2028\u2028")]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "total_tokens": 16, "completion_tokens": 9}}
    content = b"".join(
        b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in [*events, usage]
    )
    content += b"data: [DONE]\n\n"

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for byte in content:
            await reply.chunk(bytes([byte]))
            await asyncio.sleep(0)  # lets the gateway read each byte by itself
        await reply.send(b"0\r\n\r\n")

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            asked = {**STREAMED, "stream_options": {"include_usage": True}}
            answer = await client.post(COMPLETIONS, json=asked)
            hidden = await client.post(COMPLETIONS, json=STREAMED)
        assert answer.content == content
        assert hidden.content == content.replace(sse_event(json.dumps(usage).encode()), b"")
        await gateway.ended("ok", "ok", requests=2, tokens=2 * 16)


@pytest.mark.case("S4")
async def test_each_event_arrives_before_the_worker_makes_the_next() -> None:
    taken = asyncio.Event()

    async def in_step(request: Received, reply: Reply) -> None:
        assert request.headers["accept-encoding"] == "identity"
        await reply.stream_head()
        for _ in range(20):
            taken.clear()
            await reply.event(TOKEN)
            await taken.wait()
        await reply.done()

    async with FakeWorker(in_step) as worker, observed(worker) as gateway, gateway.http() as client:
        eager = {"accept-encoding": "gzip, br, zstd"}
        async with client.stream("POST", COMPLETIONS, json=STREAMED, headers=eager) as answer:
            assert "content-encoding" not in answer.headers
            events = 0
            async for line in answer.aiter_lines():
                events += line.startswith("data: {")
                taken.set()
        assert events == 20


async def test_a_stream_ends_with_done_even_if_the_worker_keeps_it_open() -> None:
    async def open_ended(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.event(b"[DONE]")
        await reply.peer_closed()

    async with FakeWorker(open_ended) as worker, observed(worker) as gateway, gateway.http() as client:
        answer = await client.post(COMPLETIONS, json=STREAMED)
        assert answer.content == sse_event(TOKEN) + sse_event(b"[DONE]")
        await worker.closed_by_peer(1)
        await gateway.ended("ok", requests=1, tokens=PROMPT_TOKENS + 1)


@pytest.mark.case("S7")
async def test_the_usage_event_reaches_only_who_asked_and_all_pay_the_same() -> None:
    asked: list[tuple[object, int]] = [
        (STREAMED, 0),
        ({**STREAMED, "stream_options": {"include_usage": False, "continuous_usage_stats": False}}, 0),
        ({**STREAMED, "stream_options": {"include_usage": True}}, 1),
        (QUESTION, 0),
    ]
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for body, events in asked:
                answer = await client.post(COMPLETIONS, json=body)
                assert answer.text.count('"choices":[]') == events
        options = [request.json().get("stream_options") for request in worker.requests]
        assert [option and option["include_usage"] for option in options] == [True, True, True, None]
        assert options[1] == {"include_usage": True, "continuous_usage_stats": False}
        await gateway.ended(*["ok"] * 4, requests=4, tokens=4 * COST)


@pytest.mark.case("L3")
async def test_usage_in_every_event_is_charged_once() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for count in (1, 2, 3):
            await reply.event({**TOKEN, "usage": {"prompt_tokens": 7, "completion_tokens": count}})
        await reply.event(USAGE)
        await reply.done()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            await client.post(COMPLETIONS, json=STREAMED)
        await gateway.ended("ok", requests=1, tokens=10)


async def test_a_keep_alive_comment_is_no_first_token() -> None:
    payload = b'{"error": {"message": "bad grammar", "type": "BadRequestError", "code": 400}}'

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(b": keep-alive\n\n")
        await asyncio.sleep(0)
        await reply.event(payload)
        await reply.done()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert (answer.status_code, answer.content) == (400, payload)
        await gateway.ended("worker_refused", requests=0, tokens=0)


@pytest.mark.case("S6")
async def test_the_first_token_may_take_longer_than_the_gap_between_two() -> None:
    async def slow_at_the_prompt(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await asyncio.sleep(0.4)  # several gaps: vLLM sends the head before it has read the prompt
        await reply.event(TOKEN)
        await reply.done()

    async with (
        FakeWorker(slow_at_the_prompt) as worker,
        observed(worker, upstream={"gap_timeout_s": 0.1}) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert answer.content == sse_event(TOKEN) + sse_event(b"[DONE]")
        await gateway.ended("ok", requests=1, tokens=PROMPT_TOKENS + 1)


async def test_a_plain_answer_to_a_streamed_request_passes_as_it_is() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["usage"]["completion_tokens"] == 1
        await gateway.ended("ok", requests=1, tokens=8)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_goes_well_is_counted_charged_and_leaves_nothing(
    path: str, stream: bool
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "stream": stream}
    scripts = [answer_of(5), plain_answer]
    async with FakeWorker(scripts) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            assert (await client.post(path, json=body)).status_code == 200
            assert (await client.post(path, json=body)).status_code == 200
        lines = await gateway.ended("ok", "ok", requests=2, tokens=2 * PROMPT_TOKENS + 5 + 8)
        assert [(line["prompt_tokens"], line["completion_tokens"]) for line in lines] == [(7, 5), (7, 8)]
        await worker.keeps(1)  # the second used the first one's
        assert len(worker.requests) == 2

"""Does a caller that reads or sends slowly, or not at all, cost anyone else anything?"""

import asyncio
import json

import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller, head_of, sockets
from tests.e2e.observed import POLL_S, limited, observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, compact, plain_answer

pytestmark = pytest.mark.usefixtures("either_lane")

LARGE_EVENT = {"choices": [{"index": 0, "text": "x" * 100_000}]}
MOST_BYTES = 20_000_000  # what kernel and gateway may hold together for one caller


async def flood(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for _ in range(2000):
        await reply.event(LARGE_EVENT)


@pytest.mark.case("S8")
async def test_a_caller_that_stops_reading_stops_the_worker_and_is_cut_off() -> None:
    sent = []

    async def watched_flood(request: Received, reply: Reply) -> None:
        try:
            await flood(request, reply)
        finally:
            sent.append(reply.sent_bytes)

    async with (
        FakeWorker([watched_flood, plain_answer]) as worker,
        observed(worker, server={"client_stall_s": 0.5}) as gateway,
    ):
        async with Caller(gateway.url, receive_bytes=4096) as caller, gateway.client() as client:
            caller.ask(STREAMED)
            await caller.head()
            stream = await client.completions.create(model=MODEL, prompt=[1], max_tokens=8, stream=True)
            assert len([chunk async for chunk in stream]) == 8  # others are served meanwhile
            await worker.closed_by_peer(1)
            while sockets(to=caller.port):  # noqa: ASYNC110 - nothing tells of its end but its absence
                await asyncio.sleep(POLL_S)
        lines = await gateway.idle_lines()
        assert sorted(line["outcome"] for line in lines) == ["client_stalled", "ok"]
        assert await gateway.metric("gateway_in_flight") == 0
    assert 0 < sent[0] < MOST_BYTES


@pytest.mark.case("S8")
async def test_a_caller_that_leaves_the_end_of_its_answer_unread_is_cut_off() -> None:
    begun = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "x" * 4_000_000}]})
        await begun.wait()
        await reply.done()

    async with (
        FakeWorker(script) as worker,
        observed(worker, server={"client_stall_s": 0.5}) as gateway,
        Caller(gateway.url, receive_bytes=4096) as caller,
    ):
        caller.ask(STREAMED)
        await caller.head()
        begun.set()
        await gateway.ended("client_stalled", requests=1, tokens=PROMPT_TOKENS + 1)


@pytest.mark.case("S8")
async def test_a_caller_that_leaves_its_answer_unread_and_goes_stops_the_worker() -> None:
    async with FakeWorker(flood) as worker, observed(worker) as gateway:
        async with Caller(gateway.url, receive_bytes=4096) as caller:
            caller.ask(STREAMED)
            await caller.head()
            caller.reset()
            await worker.closed_by_peer(1)
        await gateway.idle()
        assert [line["outcome"] for line in gateway.log_lines()] == ["client_gone"]


@pytest.mark.case("B3")
async def test_an_upload_holds_no_place_at_a_worker() -> None:
    content = compact(QUESTION)
    async with FakeWorker() as worker, observed(worker, workers=limited(worker)) as gateway:
        async with Caller(gateway.url) as slow, gateway.http() as client:
            slow.say(head_of(COMPLETIONS, {"content-length": str(len(content))}) + content[:10])
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
            slow.say(content[10:])
            assert (await slow.answer())[0] == 200
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)


async def test_an_upload_that_comes_to_a_halt_is_refused() -> None:
    async with FakeWorker() as worker, observed(worker, server={"body_timeout_s": 0.2}) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(head_of(COMPLETIONS, {"content-length": "100"}) + b'{"model":')
            status, _, body = await caller.answer()
            assert (status, json.loads(body)["error"]["code"]) == (408, "request_timeout")
        await gateway.ended("upload_timeout", requests=0, tokens=0)
        assert worker.requests == []


async def test_a_stream_that_is_read_to_the_end_late_is_whole() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(100):
            await reply.event(LARGE_EVENT)
        await reply.done()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with Caller(gateway.url, receive_bytes=4096) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            await worker.received(1)
            content = await caller.rest()
        assert content.count(b"data: ") == 101
        assert content.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await gateway.ended("ok", requests=1, tokens=PROMPT_TOKENS + 100)

"""Does an answer cost the same in whatever way it comes, and does a limit grant what it says and no more?"""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.observed import observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, framed, sse_event

pytestmark = pytest.mark.usefixtures("either_lane")

TOKEN: dict[str, Any] = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
USAGE = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": 400, "completion_tokens": 400 - PROMPT_TOKENS}
LAST = sse_event({"choices": [], "usage": USAGE})
ASKED: dict[str, Any] = {"model": MODEL, "prompt": list(range(PROMPT_TOKENS)), "max_tokens": 393}


async def plain(request: Received, reply: Reply) -> None:
    await reply.json({"choices": [], "usage": USAGE})


async def usage_at_the_end(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(TOKEN)
    await reply.event(LAST.removeprefix(b"data: ").removesuffix(b"\n\n"))
    await reply.done()


async def usage_in_every_event(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for count in range(1, 51):
        await reply.event({**TOKEN, "usage": {**USAGE, "completion_tokens": count}})
    await reply.chunk(LAST)
    await reply.done()


def usage_cut_at(position: int) -> Any:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.chunk(LAST[:position])
        await asyncio.sleep(0)  # lets the gateway read the halves apart
        await reply.send(framed(LAST[position:] + sse_event(b"[DONE]")) + b"0\r\n\r\n")

    return script


@pytest.mark.case("L3")
async def test_an_answer_of_four_hundred_tokens_costs_four_hundred_however_it_comes() -> None:
    cuts = range(1, len(LAST))
    scripts = [plain, usage_at_the_end, usage_in_every_event, *map(usage_cut_at, cuts)]
    bodies = [ASKED, *[{**ASKED, "stream": True}] * (len(scripts) - 1)]
    async with FakeWorker(scripts) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for body in bodies:
                assert (await client.post(COMPLETIONS, json=body)).status_code == 200
        lines = await gateway.ended(*["ok"] * len(bodies), requests=len(bodies), tokens=400 * len(bodies))
        assert {line["charged_tokens"] for line in lines} == {400}


@pytest.mark.case("L3")
async def test_who_leaves_after_fifty_tokens_pays_for_fifty() -> None:
    async def fifty(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(50):
            await reply.event(TOKEN)
        await reply.peer_closed()

    async with FakeWorker(fifty) as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask({**ASKED, "stream": True})
            for _ in range(50):
                await caller.until(b"\n\n")
            caller.leave()
            await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS + 50)


@pytest.mark.case("L3")
async def test_streams_and_plain_calls_are_refused_at_the_same_point_of_one_budget() -> None:
    async def either(request: Received, reply: Reply) -> None:
        await (usage_at_the_end if request.json().get("stream") else plain)(request, reply)

    reached = []
    for streamed in (False, True):
        async with (
            FakeWorker(either) as worker,
            observed(worker, tenants=[{"id": "acme", "tokens_per_minute": 1000}]) as gateway,
            gateway.http() as client,
        ):
            answers = [await client.post(COMPLETIONS, json={**ASKED, "stream": streamed}) for _ in range(4)]
            reached.append([(a.status_code, a.headers["x-ratelimit-remaining-tokens"]) for a in answers])
            assert len(worker.requests) == 2
    assert reached[0] == reached[1]
    assert [status for status, _ in reached[0]] == [200, 200, 429, 429]


@pytest.mark.case("L2")
async def test_bursts_at_the_edges_of_minutes_get_what_came_back_and_no_more() -> None:
    """A minute's worth may be taken at once, and comes back evenly: there is no edge to burst across."""
    minute = 20
    tenants = [{"id": "acme", "requests_per_minute": minute}]
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=tenants) as gateway,
        gateway.http() as client,
    ):

        async def burst(at_s: float, calls: int = 40) -> int:
            gateway.clock.now_s = at_s
            answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(calls)))
            return [answer.status_code for answer in answers].count(200)

        assert await burst(59.9) == minute
        assert await burst(60.1) == 0
        assert await burst(119.9) == minute
        assert await burst(120.0) == 0
        later = [await burst(120.0 + 7 * number, 5) for number in range(1, 31)]  # one comes back in 3 s
        assert sum(later) == 7 * 30 // 3
        assert max(later) == 3


@pytest.mark.case("L4")
async def test_a_busy_worker_s_own_time_to_come_back_arrives() -> None:
    async def busy(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "full", "code": 503}}, 503, {"retry-after": "7"})

    async with FakeWorker(busy) as worker, observed(worker) as gateway, gateway.http() as client:
        answers: list[httpx.Response] = [
            await client.post(COMPLETIONS, json=body) for body in (QUESTION, STREAMED)
        ]
    assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [(503, "7")] * 2

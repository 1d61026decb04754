"""Does an answer that a worker broke off look broken, once, and is it charged for what it was?"""

import asyncio
import json

import openai
import pytest

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.observed import observed
from tests.fakes import (
    PROMPT_TOKENS,
    FakeWorker,
    Received,
    Reply,
    Script,
    compact,
    response_head,
    sse_event,
)

pytestmark = pytest.mark.usefixtures("either_lane")

TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
FAILURE = b'{"error": {"message": "EngineCore at 10.0.0.7", "type": "InternalServerError", "code": 500}}'


class Broken:
    """A worker's script that sends three tokens, waits until they have arrived, and then fails."""

    def __init__(self, failing: Script) -> None:
        self.arrived = asyncio.Event()
        self._failing = failing

    async def __call__(self, request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(3):
            await reply.event(TOKEN)
        await self.arrived.wait()
        await self._failing(request, reply)


async def reset(request: Received, reply: Reply) -> None:
    reply.reset()


async def end_inside_a_chunk(request: Received, reply: Reply) -> None:
    await reply.send(b"40\r\ndata: {")
    reply.close()


async def end_between_chunks(request: Received, reply: Reply) -> None:
    reply.close()


async def send_nonsense(request: Received, reply: Reply) -> None:
    await reply.send(b"this is no chunk\r\n")


async def tell_of_a_failure(request: Received, reply: Reply) -> None:
    await reply.event(FAILURE)
    await reply.done()


async def fall_silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def end_without_done(request: Received, reply: Reply) -> None:
    await reply.send(b"0\r\n\r\n")


@pytest.mark.case("S5")
@pytest.mark.parametrize(
    ("failing", "code", "kind"),
    [
        (reset, "worker_failed", "broke"),
        (end_inside_a_chunk, "worker_failed", "broke"),
        (end_between_chunks, "worker_failed", "broke"),
        (send_nonsense, "worker_failed", "broke"),
        (tell_of_a_failure, "worker_failed", "failed"),
        (fall_silent, "worker_timeout", "gap_timeout"),
    ],
)
async def test_a_worker_that_fails_in_mid_stream_becomes_one_error_event(
    failing: Script, code: str, kind: str
) -> None:
    script = Broken(failing)
    async with (
        FakeWorker(script) as worker,
        FakeWorker() as other,
        observed(worker, other, upstream={"gap_timeout_s": 0.3}) as gateway,
    ):
        async with gateway.http() as client, client.stream("POST", COMPLETIONS, json=STREAMED) as answer:
            lines = answer.aiter_lines()
            received = [await anext(lines) for _ in range(6)]
            script.arrived.set()
            received += [line async for line in lines]
        assert received[:6] == ["data: " + compact(TOKEN).decode(), ""] * 3
        assert [line for line in received[6:] if line][1:] == []  # one event, and the end
        error = json.loads(received[6].removeprefix("data: "))["error"]
        assert error["code"] == code
        assert "10.0.0.7" not in error["message"]
        outcome = kind if code == "worker_timeout" else code
        [line] = await gateway.ended(outcome, requests=1, tokens=PROMPT_TOKENS + 3)
        assert (line["status"], bool(line["detail"])) == (200, True)
        assert (len(worker.requests), len(other.requests)) == (1, 0)
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind=kind) == 1


@pytest.mark.case("S5")
async def test_a_failure_in_mid_stream_raises_in_the_sdk() -> None:
    script = Broken(reset)
    async with FakeWorker(script) as worker, observed(worker) as gateway, gateway.client() as client:
        stream = await client.completions.create(model=MODEL, prompt="hi", stream=True)
        assert [(await anext(stream)).choices[0].text for _ in range(3)] == [" glad"] * 3
        script.arrived.set()
        with pytest.raises(openai.APIError) as failure:
            await anext(stream)
        assert (failure.value.code, failure.value.type) == ("worker_failed", "server_error")


@pytest.mark.case("S5")
async def test_a_stream_that_ends_without_done_ends_so_and_is_counted_as_incomplete() -> None:
    script = Broken(end_without_done)
    script.arrived.set()
    async with FakeWorker(script) as worker, FakeWorker() as other, observed(worker, other) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert answer.content == sse_event(TOKEN) * 3
        await gateway.ended("incomplete", requests=1, tokens=PROMPT_TOKENS + 3)
        assert (len(worker.requests), len(other.requests)) == (1, 0)


async def test_a_plain_answer_that_breaks_at_its_start_becomes_502() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "application/json", "content-length": "99"}))
        await reply.send(b'{"choices":')
        reply.close()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
        await gateway.ended("worker_failed", requests=0, tokens=0)
        assert len(worker.requests) == 1


@pytest.mark.case("S5")
@pytest.mark.parametrize("framing", [{"content-length": "5000000"}, {"transfer-encoding": "chunked"}])
async def test_a_plain_answer_that_breaks_later_is_cut_and_never_looks_whole(framing: dict[str, str]) -> None:
    arrived = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "application/json", **framing}))
        write = reply.chunk if "transfer-encoding" in framing else reply.send
        for _ in range(10):
            await write(b" " * 100_000)
        await arrived.wait()
        reply.close()

    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION)
            status, _ = await caller.head()
            arrived.set()
            rest = await caller.rest()
        assert status == 200
        assert b"error" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        [line] = await gateway.ended("worker_failed", requests=0, tokens=0)
        assert (line["status"], bool(line["detail"])) == (200, True)

"""Has every wait an end of its own, counted as what it is, after which nothing is left?

Slow callers are in `test_slow_callers.py`, silent workers also in `test_broken_streams.py`.
"""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller, head_of
from tests.e2e.gates import TOKEN, Gate
from tests.e2e.observed import STEADY_PROBES, limited, observed
from tests.fakes import (
    PROMPT_TOKENS,
    FakeWorker,
    Received,
    Reply,
    Script,
    plain_answer,
    response_head,
    sse_event,
)

pytestmark = pytest.mark.usefixtures("either_lane")

BRIEF_S = 0.3
LIMITS: dict[str, dict[str, Any]] = {
    "first_byte_timeout": {"upstream": {"first_byte_timeout_s": BRIEF_S}},
    "gap_timeout": {"upstream": {"gap_timeout_s": BRIEF_S}},
    "request_timeout": {"server": {"request_timeout_s": BRIEF_S}},
}
HALF = b'{"choices":['


async def say_nothing(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def say_the_head(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


async def say_some(request: Received, reply: Reply) -> None:
    if request.json().get("stream"):
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.event(TOKEN)
    else:
        head = {"content-type": "application/json", "content-length": "500"}
        await reply.send(response_head(200, head) + HALF)
    await reply.peer_closed()


@pytest.mark.parametrize(
    ("outcome", "script", "body"),
    [
        ("first_byte_timeout", say_nothing, QUESTION),
        ("first_byte_timeout", say_nothing, STREAMED),
        ("first_byte_timeout", say_the_head, STREAMED),
        ("gap_timeout", say_some, QUESTION),
        ("request_timeout", say_nothing, QUESTION),
        ("request_timeout", say_nothing, STREAMED),
        ("request_timeout", say_the_head, STREAMED),
        ("request_timeout", say_some, QUESTION),
    ],
)
async def test_who_has_got_nothing_yet_is_told_by_a_status(
    outcome: str, script: Script, body: object
) -> None:
    is_workers = outcome != "request_timeout"
    async with (
        FakeWorker(script) as worker,
        FakeWorker(script) as other,
        observed(worker, other, **LIMITS[outcome]) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "worker_timeout")
        assert answer.headers["x-should-retry"] == "false"
        # Where the worker may have worked all the time, its tenant pays for what it read.
        charge = (0, 0) if is_workers else (1, PROMPT_TOKENS)
        [line] = await gateway.ended(outcome, requests=charge[0], tokens=charge[1])
        assert (line["status"], line["tried"]) == (504, [])
        assert len(worker.requests + other.requests) == 1
        failures = await gateway.metric("gateway_worker_failures_total")
        assert failures == await gateway.metric("gateway_worker_failures_total", kind=outcome) == is_workers
        await (worker if worker.requests else other).closed_by_peer(1)


@contextmanager
def taking_nobody(port: int) -> Iterator[None]:
    """A listener there at which no further connection comes about."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield


@pytest.mark.parametrize("body", [QUESTION, STREAMED])
async def test_a_worker_that_takes_no_connection_in_time_is_left_for_another(body: object) -> None:
    async with (
        FakeWorker() as hung,
        FakeWorker() as other,
        observed(hung, other, upstream={"connect_timeout_s": BRIEF_S}, fleet=STEADY_PROBES) as gateway,
    ):
        await hung.stop()
        with taking_nobody(hung.port):
            async with gateway.http() as client:
                answers = [await client.post(COMPLETIONS, json=body) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200]
            await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)
            kind = {"kind": "connect_timeout", "worker": "w0"}
            assert await gateway.metric("gateway_worker_failures_total", **kind) >= 1


async def test_where_there_is_no_other_that_is_what_a_request_ends_by() -> None:
    async with (
        FakeWorker() as hung,
        observed(hung, upstream={"connect_timeout_s": BRIEF_S}, fleet=STEADY_PROBES) as gateway,
    ):
        await hung.stop()
        with taking_nobody(hung.port):
            async with gateway.http() as client:
                answer = await client.post(COMPLETIONS, json=QUESTION)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
            await gateway.ended("connect_timeout", requests=0, tokens=0)
            assert await gateway.metric("gateway_worker_failures_total", kind="connect_timeout") == 1


@pytest.mark.parametrize("outcome", ["gap_timeout", "request_timeout"])
async def test_who_has_got_a_part_of_a_stream_is_told_in_it(outcome: str) -> None:
    async with FakeWorker(say_some) as worker, observed(worker, **LIMITS[outcome]) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        tokens = 2 * sse_event(TOKEN)
        assert answer.content.startswith(tokens)
        last = answer.content.removeprefix(tokens)
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert (error["code"], last[-2:]) == ("worker_timeout", b"\n\n")
        await gateway.ended(outcome, requests=1, tokens=PROMPT_TOKENS + 2)
        await worker.closed_by_peer(1)


async def test_a_plain_answer_of_which_a_part_is_out_is_cut_and_never_looks_whole() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.send(response_head(200, {"content-type": "application/json", "content-length": "500"}))
        await reply.send(HALF)
        await asyncio.sleep(0)
        await reply.send(b" " * 100)
        await reply.peer_closed()

    async with FakeWorker(script) as worker, observed(worker, **LIMITS["request_timeout"]) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION)
            heard = await caller.rest()
        head, _, content = heard.partition(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"content-length: 500" in head
        assert len(content) < 500
        await gateway.ended("request_timeout", requests=1, tokens=PROMPT_TOKENS)
        await worker.closed_by_peer(1)


@pytest.mark.parametrize("body", [QUESTION, STREAMED])
async def test_the_wait_in_the_queue_is_a_part_of_the_whole(body: object) -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(worker, workers=limited(worker), **LIMITS["request_timeout"]) as gateway,
    ):
        async with gateway.http() as client:
            at_work = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await worker.received(1)
            queued = asyncio.create_task(client.post(COMPLETIONS, json=body))
            answers = await asyncio.gather(at_work, queued)
        assert [answer.status_code for answer in answers] == [504, 504]
        await gateway.ended(*["request_timeout"] * 2, requests=1, tokens=PROMPT_TOKENS)
        assert len(worker.requests) == 1


async def test_an_upload_is_a_part_of_the_whole() -> None:
    async with FakeWorker() as worker, observed(worker, **LIMITS["request_timeout"]) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(head_of(COMPLETIONS, {"content-length": "100"}) + b'{"model":')
            status, headers, body = await caller.answer()
        assert (status, json.loads(body)["error"]["code"]) == (504, "worker_timeout")
        assert headers["x-should-retry"] == "false"
        await gateway.ended("request_timeout", requests=0, tokens=0)
        assert worker.requests == []


@pytest.mark.parametrize("body", [QUESTION, STREAMED])
async def test_who_takes_no_answer_is_cut_off_whatever_the_answer_is(body: dict[str, Any]) -> None:
    """However much of it there is to come."""

    async def script(request: Received, reply: Reply) -> None:
        content = {"choices": [{"index": 0, "text": "x" * 8_000_000}]}
        if request.json().get("stream"):
            await reply.stream_head()
            await reply.event(content)
            await reply.peer_closed()
        else:
            await reply.json(content)

    async with (
        FakeWorker([script, plain_answer]) as worker,
        observed(worker, server={"client_stall_s": BRIEF_S}) as gateway,
        Caller(gateway.url, receive_bytes=4096) as caller,
    ):
        caller.ask(body)
        await caller.head()
        await gateway.reaches(1, "gateway_requests_total", outcome="client_stalled")
        async with gateway.http() as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
        lines = await gateway.idle_lines()
        assert [line["outcome"] for line in lines] == ["client_stalled", "ok"]
        assert await gateway.metric("gateway_in_flight") == 0


async def test_what_ends_in_time_is_not_touched() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for body in (QUESTION, STREAMED):
                assert (await client.post(COMPLETIONS, json=body)).status_code == 200
        gateway.gateway.under_way.look()
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)

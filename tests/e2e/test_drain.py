"""Does a gateway that is told to stop finish what it can, refuse what is new, and tell whom it must cut?"""

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.conftest import configuration
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.gates import TOKEN, StreamGate
from tests.e2e.observed import limited, observed
from tests.e2e.program import DRAINING, SETTLING, program
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply

LEASES = "gateway:{acme}:leases"


@pytest.mark.usefixtures("either_lane")
async def test_a_drain_serves_what_was_accepted_and_refuses_what_comes() -> None:
    gate = StreamGate(holds_plain=True)
    async with (
        FakeWorker(gate) as worker,
        observed(worker, workers=limited(worker), server={"drain_s": 60}) as gateway,
    ):
        async with gateway.http() as client, client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
            lines = stream.aiter_lines()
            first = await anext(lines)
            queued = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await gateway.reaches(1, "gateway_queue_depth")
            draining = asyncio.create_task(gateway.gateway.drain(asyncio.Event()))
            await asyncio.sleep(0)
            refused = await client.post(COMPLETIONS, json=QUESTION)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert refused.headers["retry-after"] == "1"
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
            assert (await client.get("/health")).status_code == 200
            assert not draining.done()
            gate.open.set()
            rest = [line async for line in lines if line]
            assert [first, *rest][-1] == "data: [DONE]"
            assert len(rest) == 2
            assert (await queued).status_code == 200
            await draining
        await gateway.ended("ok", "ok", "draining", requests=2, tokens=COST + PROMPT_TOKENS + 2)


@pytest.mark.usefixtures("either_lane")
@pytest.mark.parametrize("hurried", [False, True], ids=["out of time", "told twice"])
async def test_what_does_not_end_in_time_is_told_and_its_worker_stopped(hurried: bool) -> None:
    gate = StreamGate(holds_plain=True)
    async with (
        FakeWorker(gate) as worker,
        observed(
            worker, workers=limited(worker, max_concurrency=2), server={"drain_s": 60 if hurried else 0.2}
        ) as gateway,
    ):
        async with gateway.http() as client, client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            waiting = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await worker.received(2)
            queued = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await gateway.reaches(1, "gateway_queue_depth")
            hurry = asyncio.Event()
            draining = asyncio.create_task(gateway.gateway.drain(hurry))
            if hurried:
                hurry.set()
            await worker.closed_by_peer(2)
            event = [line async for line in lines if line][-1]
            assert json.loads(event.removeprefix("data: "))["error"]["code"] == "draining"
            for answer in (await waiting, await queued):
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
                assert "retry-after" in answer.headers
            await draining
        await gateway.ended(*["draining"] * 3, requests=2, tokens=2 * PROMPT_TOKENS + 1)


@pytest.mark.usefixtures("either_lane")
async def test_until_balancers_know_what_comes_is_served_and_each_answer_is_the_last_of_its_connection() -> (
    None
):
    gate = StreamGate(holds_plain=False)
    async with (
        FakeWorker(gate) as worker,
        observed(worker, server={"drain_s": 60, "settle_s": 60}) as gateway,
        Caller(gateway.url) as streaming,
        Caller(gateway.url) as kept,
        Caller(gateway.url) as idle,
        Caller(gateway.url) as silent,
    ):
        streaming.ask(STREAMED)
        await streaming.head()
        for caller in (kept, idle):
            caller.ask(QUESTION)
            assert "connection" not in (await caller.answer())[1]
        enough = asyncio.Event()
        settling = asyncio.create_task(gateway.gateway.ending.settle(enough))
        await asyncio.sleep(0)
        async with gateway.http() as client:
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
            assert ready.headers["connection"] == "close"
            new = await client.post(COMPLETIONS, json=QUESTION)
            assert (new.status_code, new.headers["connection"]) == (200, "close")
        kept.ask(QUESTION)
        status, headers, _ = await kept.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await kept.rest() == b""
        assert (idle.may_speak, silent.may_speak) == (True, True)
        enough.set()
        await settling
        draining = asyncio.create_task(gateway.gateway.drain(asyncio.Event()))
        assert await idle.rest() == b""  # its caller connects anew, to another gateway
        silent.ask(QUESTION)
        status, headers, body = await silent.answer()
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
        assert (headers["connection"], headers["retry-after"]) == ("close", "1")
        gate.open.set()
        await streaming.until(b"data: [DONE]\n\n")
        await draining


async def test_a_signal_ends_the_process_once_its_streams_have_ended(tmp_path: Path) -> None:
    gate = StreamGate(holds_plain=True)
    async with FakeWorker(gate) as worker:
        config = configuration(worker, server={"drain_s": 60})
        async with program(config, tmp_path) as gateway, gateway.client() as client:
            stream = await client.completions.create(**QUESTION, stream=True)
            chunks = [await anext(stream)]
            gateway.terminate()
            await gateway.says(DRAINING)
            gate.open.set()
            chunks += [chunk async for chunk in stream]
            assert len(chunks) == 2
            assert await gateway.process.wait() == 0
            [line] = [json.loads(line) for line in gateway.log.read_text().splitlines()]
            assert line["outcome"] == "ok"


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    gate = StreamGate(holds_plain=True)
    async with FakeWorker(gate) as worker:
        config = configuration(worker, server={"drain_s": 3600})
        async with program(config, tmp_path) as gateway, gateway.client() as client:
            stream = await client.completions.create(**QUESTION, stream=True)
            await anext(stream)
            gateway.terminate()
            await gateway.says(DRAINING)
            gateway.terminate()
            await worker.closed_by_peer(1)
            assert await gateway.process.wait() == 0
            [line] = [json.loads(line) for line in gateway.log.read_text().splitlines()]
            assert line["outcome"] == "draining"


@pytest.mark.case("D1")
async def test_while_balancers_learn_of_it_what_comes_is_served_unless_a_second_signal_comes(
    tmp_path: Path,
) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker:
        config = configuration(worker, server={"drain_s": 3600, "settle_s": 3600})
        async with program(config, tmp_path) as gateway, gateway.http() as client:
            async with client.stream("POST", COMPLETIONS, json=STREAMED) as stream:
                lines = stream.aiter_lines()
                await anext(lines)
                gateway.terminate()
                await gateway.says(SETTLING)
                assert (await client.get("/ready")).status_code == 503
                assert (await client.get("/health")).status_code == 200
                answer = await client.post(COMPLETIONS, json=QUESTION)
                assert (answer.status_code, answer.headers["connection"]) == (200, "close")
                gateway.terminate()
                event = [line async for line in lines if line][-1]
                assert json.loads(event.removeprefix("data: "))["error"]["code"] == "draining"
            assert await gateway.process.wait() == 0
            await worker.closed_by_peer(1)


async def test_who_interrupts_an_idle_gateway_by_hand_waits_for_nothing(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        config = configuration(worker, server={"drain_s": 3600, "settle_s": 3600})
        async with program(config, tmp_path) as gateway:
            gateway.process.send_signal(signal.SIGINT)
            assert await gateway.process.wait() == 0


@pytest.mark.case("D1")
async def test_streams_end_well_or_are_told_and_nothing_is_held_after_a_drain(
    tmp_path: Path, redis_url: str
) -> None:
    gate, left = asyncio.Event(), asyncio.Event()

    async def speaking(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        if request.json()["user"] == "endless":
            await reply.peer_closed()
            left.set()
        else:
            await gate.wait()
            await reply.event(TOKEN)
            await reply.done()

    async with FakeWorker(speaking) as worker, Redis.from_url(redis_url) as redis:
        config = configuration(
            worker,
            server={"drain_s": 5},
            store={"url": redis_url},
            tenants=[{"id": "acme", "max_concurrency": 4}],
        )
        async with program(config, tmp_path) as gateway, AsyncExitStack() as stack:
            callers = []
            for user in ("brief", "long", "endless"):
                callers.append(await stack.enter_async_context(Caller(gateway.url)))
                callers[-1].ask({**STREAMED, "user": user})
                await callers[-1].until(b"data: {")
            assert await redis.zcard(LEASES) == 3
            gateway.terminate()
            await gateway.says(DRAINING)
            async with gateway.http() as client:
                assert (await client.get("/ready")).status_code == 503
                refused = await client.post(COMPLETIONS, json=QUESTION)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert refused.headers["connection"] == "close"
            gate.set()
            for caller in callers[:2]:
                assert b"data: [DONE]\n\n" in await caller.rest()
            told = await callers[2].rest()
            assert b'"code": "draining"' in told
            assert b"[DONE]" not in told
            await left.wait()
            assert await gateway.process.wait() == 0
            assert await redis.zcard(LEASES) == 0
            lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
            assert sorted(line["outcome"] for line in lines) == ["draining", "draining", "ok", "ok"]

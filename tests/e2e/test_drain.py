"""Does a gateway that is told to stop finish what it can, refuse what is new, and tell whom it must cut?"""

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import configuration
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED
from tests.e2e.gates import StreamGate
from tests.e2e.observed import limited, observed
from tests.e2e.program import DRAINING, program
from tests.fakes import PROMPT_TOKENS, FakeWorker

pytestmark = pytest.mark.usefixtures("either_lane")


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

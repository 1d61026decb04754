"""Do several processes behind one port serve as one, even when one of them dies? Are counts true over all?"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from openai import AsyncStream
from openai.types import Completion
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import KEY, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION, TOKENS
from tests.e2e.gates import StreamGate
from tests.e2e.observed import POLL_S
from tests.e2e.program import DRAINING, Program, program
from tests.fakes import FakeWorker

REPLACED = re.compile(rb"process (\d) \(pid (\d+)\) was killed: Killed \(9\)")
ORPHANED = re.compile(rb"the parent process is gone")
NEVER_FALL = ("_total", "_count", "_sum", "_bucket")


class Pair:
    """A gateway of two processes."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def pids(self) -> set[int]:
        """The processes that serve."""
        parent = self.program.process.pid
        return {int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()}

    async def complete(self) -> set[int]:
        """Wait until both run."""
        while len(pids := self.pids()) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(POLL_S)
        return pids

    @asynccontextmanager
    async def without(self, pid: int) -> AsyncIterator[None]:
        """This process stands still meanwhile: whoever connects is served by the other one."""
        os.kill(pid, signal.SIGSTOP)
        while state(pid) != "T":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def http(self, url: str = "") -> httpx.AsyncClient:
        """A client with connections of its own."""
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.AsyncClient(
            base_url=url or self.program.url, headers=headers, timeout=30, trust_env=False
        )

    async def ask(self, times: int) -> None:
        async with self.http() as client:
            answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(times)))
        assert {answer.status_code for answer in answers} == {200}

    async def samples(self) -> dict[str, float]:
        """The gateway's metrics, by name and labels."""
        async with self.http(self.program.admin_url) as client:
            text = (await client.get("/metrics")).text
        return {
            sample.name + str(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def counts(self) -> dict[str, float]:
        """Those of them that must never fall."""
        found = await self.samples()
        return {
            name: value
            for name, value in found.items()
            if name.startswith("gateway_") and name.partition("[")[0].endswith(NEVER_FALL)
        }


def state(pid: int) -> str:
    """T: it stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@asynccontextmanager
async def pair(worker: FakeWorker, place: Path, redis_url: str) -> AsyncIterator[Pair]:
    server = {"processes": 2, "drain_s": 60}
    config = configuration(worker, server=server, store={"url": redis_url})
    async with program(config, place) as running:
        gateway = Pair(running)
        await gateway.complete()
        yield gateway


@asynccontextmanager
async def streams(gateway: Pair) -> AsyncIterator[dict[int, AsyncStream[Completion]]]:
    """A stream at each process, by the process's id, of which one token has come."""
    found = {}
    async with AsyncExitStack() as stack:
        first, second = gateway.pids()
        for pid, other in ((first, second), (second, first)):
            async with gateway.without(other):
                client = await stack.enter_async_context(gateway.program.client())
                found[pid] = await client.completions.create(**QUESTION, stream=True)
                await anext(found[pid])
        yield found


async def test_counts_are_the_same_whichever_process_tells_them(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker, pair(worker, tmp_path, redis_url) as gateway:
        for times, pid in enumerate(gateway.pids(), 3):
            async with gateway.without(pid):
                await gateway.ask(times)
        await gateway.program.reaches(7, "gateway_requests_total")
        told = []
        for pid in gateway.pids():
            async with gateway.without(pid):
                told.append(await gateway.counts())
        assert told[0] == told[1]


async def test_the_prefix_caches_of_workers_serve_all_processes(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker, pair(worker, tmp_path, redis_url) as gateway:
        for pid in gateway.pids():
            async with gateway.without(pid):
                await gateway.ask(1)
        first, second = (request.json()["cache_salt"] for request in worker.requests)
        assert first == second


async def test_requests_at_once_are_counted_once_each(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker, pair(worker, tmp_path, redis_url) as gateway:
        await gateway.ask(200)
        await gateway.program.reaches(200, "gateway_requests_total")
        for _ in range(8):
            assert await gateway.program.metric("gateway_requests_total") == 200
            assert await gateway.program.metric("gateway_request_seconds_count") == 200
            assert await gateway.program.metric("gateway_tokens_total") == 200 * (7 + TOKENS)
        await gateway.program.reaches(0, "gateway_in_flight")
        samples = await gateway.samples()
        assert samples["gateway_concurrency_limit[('worker', 'w0')]"] == 16
        assert samples["gateway_worker_up[('worker', 'w0')]"] == 1
        assert samples["process_resident_memory_bytes[('process', '0')]"] > 0
        assert samples["process_resident_memory_bytes[('process', '1')]"] > 0


async def test_gauges_are_of_all_processes_that_live(tmp_path: Path, redis_url: str) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            await gateway.program.reaches(2, "gateway_in_flight")
            os.kill(next(iter(both)), signal.SIGKILL)
            await gateway.program.reaches(1, "gateway_in_flight")
            gate.open.set()
        await gateway.complete()


async def test_a_process_that_is_killed_is_replaced_and_harms_no_other(
    tmp_path: Path, redis_url: str
) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            victim, survivor = both
            async with gateway.without(survivor):
                await gateway.ask(5)
            await gateway.program.reaches(5, "gateway_requests_total")
            before = await gateway.counts()
            os.kill(victim, signal.SIGKILL)
            [_, pid] = (await gateway.program.says(REPLACED)).groups()
            assert int(pid) == victim
            assert (await gateway.counts()).items() >= before.items()
            assert victim not in await gateway.complete()
            async with gateway.without(survivor):
                await gateway.ask(2)  # served by the successor, as nobody else runs
            gate.open.set()
            assert len([chunk async for chunk in both[survivor]]) == 1
        await gateway.program.reaches(8, "gateway_requests_total")
        after = await gateway.counts()
        assert {name for name, value in before.items() if after[name] < value} == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_processes_once_their_streams_have_ended(
    number: signal.Signals, tmp_path: Path, redis_url: str
) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            gateway.program.process.send_signal(number)
            for _ in both:
                await gateway.program.says(DRAINING)
            gate.open.set()
            for stream in both.values():
                assert len([chunk async for chunk in stream]) == 1
        assert await gateway.program.process.wait() == 0


async def test_a_process_that_drains_alone_leaves_what_comes_to_the_other(
    tmp_path: Path, redis_url: str
) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            os.kill(next(iter(both)), signal.SIGTERM)
            await gateway.program.says(DRAINING)
            await gateway.ask(20)
            gate.open.set()
            for stream in both.values():
                assert len([chunk async for chunk in stream]) == 1
        await gateway.complete()


async def test_a_process_that_is_told_twice_of_the_same_signal_drains_on(
    tmp_path: Path, redis_url: str
) -> None:
    """As by an init system that signals every process of a service, the parent too."""
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            for pid in (gateway.program.process.pid, *both):
                os.kill(pid, signal.SIGTERM)
            for _ in both:
                await gateway.program.says(DRAINING)
            gate.open.set()
            for stream in both.values():
                assert len([chunk async for chunk in stream]) == 1
        assert await gateway.program.process.wait() == 0


async def test_a_second_signal_ends_all_processes_at_once(tmp_path: Path, redis_url: str) -> None:
    async with (
        FakeWorker(StreamGate(holds_plain=False)) as worker,
        pair(worker, tmp_path, redis_url) as gateway,
        streams(gateway) as both,
    ):
        gateway.program.terminate()
        for _ in both:
            await gateway.program.says(DRAINING)
        gateway.program.terminate()
        assert await gateway.program.process.wait() == 0


async def test_processes_whose_parent_was_killed_drain_and_end(tmp_path: Path, redis_url: str) -> None:
    gate = StreamGate(holds_plain=False)
    async with FakeWorker(gate) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with streams(gateway) as both:
            gateway.program.process.kill()
            for _ in both:
                await gateway.program.says(ORPHANED)
            gate.open.set()
            for stream in both.values():
                assert len([chunk async for chunk in stream]) == 1
        assert gateway.program.process.stderr
        await gateway.program.process.stderr.read()  # it ends with the last process that holds it

"""When all processes are replaced one by one: does anybody notice, and is all that is configured in force?"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import configuration
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller, head_of
from tests.e2e.gates import TOKEN
from tests.e2e.observed import POLL_S
from tests.e2e.program import Program, program
from tests.e2e.test_processes import Pair, pair
from tests.fakes import FakeWorker, Received, Reply, plain_answer

BEGUN = re.compile(rb"a rolling restart begins")
COMPLETE = re.compile(rb"the rolling restart is complete: all 2 processes")
NOT_REPLACED = re.compile(rb"ERROR no process is replaced by what .*gateway\.toml says now: (.*)")
ALONE = re.compile(rb"SIGUSR2 does nothing where server\.processes = 1")
LEFT_ALONE = re.compile(rb"a successor takes what comes")
LAST_CHUNK = b"0\r\n\r\n"
ASKING = 4  # callers of each kind


class Worker:
    """Streams two tokens; of those streams that are `held`, the second once the gate is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, request: Received, reply: Reply) -> None:
        body = request.json()
        if not body.get("stream"):
            await plain_answer(request, reply)
            return
        await reply.stream_head()
        await reply.event(TOKEN)
        if body.get("user") == "held":
            await self.open.wait()
        await reply.event(TOKEN)
        await reply.done()


class Public:
    """Callers who go on asking over connections that they keep for as long as they may."""

    def __init__(self, gateway: Pair) -> None:
        self.gateway = gateway
        self.answers = 0
        self.goes_on = True

    async def ask(self, body: dict[str, Any]) -> None:
        while self.goes_on:
            async with Caller(self.gateway.program.url) as caller:
                while self.goes_on and await self._may_stay_after(caller, body):
                    pass

    async def _may_stay_after(self, caller: Caller, body: dict[str, Any]) -> bool:
        caller.ask(body)
        status, headers = await caller.head()
        assert status == 200
        if body.get("stream"):
            assert (await caller.until(LAST_CHUNK)).count(b"data: ") == 3
        else:
            await caller.exactly(int(headers["content-length"]))
        self.answers += 1
        return headers.get("connection") != "close"

    async def probe(self) -> None:
        """As a balancer: whether it is ready, each time."""
        while self.goes_on:
            async with Caller(self.gateway.program.url) as caller:
                headers = {"connection": "keep-alive"}
                while self.goes_on and headers.get("connection") != "close":
                    caller.say(head_of("/ready", {}, "GET"))
                    status, headers, _ = await caller.answer()
                    assert status == 200

    async def watch_counts(self) -> None:
        """They never fall, whoever tells them."""
        before: dict[str, float] = {}
        while self.goes_on:
            now = await self.gateway.counts()
            assert {name for name, value in before.items() if now.get(name, 0) < value} == set()
            before = now


@asynccontextmanager
async def asking(gateway: Pair) -> AsyncIterator[Public]:
    """They ask for as long as the block lasts, and not one is turned away."""
    public = Public(gateway)
    async with asyncio.TaskGroup() as group:
        for _ in range(ASKING):
            group.create_task(public.ask(QUESTION))
            group.create_task(public.ask(STREAMED))
        group.create_task(public.probe())
        group.create_task(public.watch_counts())
        yield public
        public.goes_on = False


async def more(public: Public) -> None:
    """Wait until each of the callers was answered some more, in the mean."""
    enough = public.answers + 4 * ASKING
    while public.answers < enough:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(POLL_S)


def roll(gateway: Program) -> None:
    gateway.process.send_signal(signal.SIGUSR2)


async def only(gateway: Pair, count: int) -> set[int]:
    """Wait until no more processes than that are left."""
    while len(pids := gateway.pids()) != count:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    return pids


@pytest.mark.timeout(120)
async def test_nobody_notices_that_all_processes_are_replaced(tmp_path: Path, redis_url: str) -> None:
    script = Worker()
    async with FakeWorker(script) as worker, pair(worker, tmp_path, redis_url) as gateway:
        before = gateway.pids()
        async with AsyncExitStack() as stack, asking(gateway) as public:
            held = [await stack.enter_async_context(Caller(gateway.program.url)) for _ in range(8)]
            for caller in held:
                caller.ask({**STREAMED, "user": "held"})
                await caller.until(b"data: {")
            await more(public)
            roll(gateway.program)
            await gateway.program.says(COMPLETE)
            await more(public)
            assert before & gateway.pids(), "who was replaced has streams to end"
            script.open.set()
            for caller in held:
                assert b"data: [DONE]" in await caller.until(LAST_CHUNK)
            between = await only(gateway, 2)
            assert not before & between
            roll(gateway.program)
            await gateway.program.says(COMPLETE)
            await more(public)
            assert not between & await only(gateway, 2)
        await gateway.program.reaches(public.answers + len(held), "gateway_requests_total")
        await gateway.program.reaches(0, "gateway_in_flight")
    lines = (tmp_path / "gateway.log").read_text().splitlines()
    assert len(lines) == public.answers + len(held)
    assert len({request.json()["cache_salt"] for request in worker.requests}) == 1, "caches serve all"


async def test_streams_of_those_that_were_replaced_are_counted_while_they_last(
    tmp_path: Path, redis_url: str
) -> None:
    script = Worker()
    async with FakeWorker(script) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with Caller(gateway.program.url) as held:
            held.ask({**STREAMED, "user": "held"})
            await held.until(b"data: {")
            roll(gateway.program)
            await gateway.program.says(COMPLETE)
            for _ in range(4):
                await gateway.program.reaches(1, "gateway_in_flight")
            script.open.set()
            await held.until(LAST_CHUNK)
        await gateway.program.reaches(0, "gateway_in_flight")
        await only(gateway, 2)
        await gateway.program.reaches(1, "gateway_requests_total")


async def test_a_drain_in_the_middle_of_a_rolling_restart_ends_all(tmp_path: Path, redis_url: str) -> None:
    script = Worker()
    async with FakeWorker(script) as worker, pair(worker, tmp_path, redis_url) as gateway:
        async with Caller(gateway.program.url) as held:
            held.ask({**STREAMED, "user": "held"})
            await held.until(b"data: {")
            roll(gateway.program)
            await gateway.program.says(LEFT_ALONE)
            gateway.program.terminate()
            script.open.set()
            assert b"data: [DONE]" in await held.until(LAST_CHUNK)
        assert await gateway.program.process.wait() == 0


async def test_what_needs_a_restart_is_in_force_after_it(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker, pair(worker, tmp_path, redis_url) as gateway:
        file = tmp_path / "gateway.toml"
        text = file.read_text()
        async with gateway.http() as client:
            large = {**QUESTION, "user": "x" * 2000}
            assert (await client.post(COMPLETIONS, json=large)).status_code == 200
            secret = '[auth]\ncache_salt_secret = "s3cret"\n'
            file.write_text(secret + text.replace("[server]\n", "[server]\nmax_body_bytes = 1024\n"))
            roll(gateway.program)
            await gateway.program.says(COMPLETE)
            await only(gateway, 2)
            assert (await client.post(COMPLETIONS, json=large)).status_code == 413
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
            before, after = (request.json()["cache_salt"] for request in worker.requests)
            assert before != after
            for broken, reason in {
                "[server]\nmax_body_bytes = 1\n": b"server.max_body_bytes = 1: ",
                "[server]\nkeep_alive_s = 5\nhost = '127.0.0.2'\n": b"it changes server.host, for which",
            }.items():
                pids = gateway.pids()
                file.write_text(text.replace("[server]\n", broken))
                roll(gateway.program)
                [said] = (await gateway.program.says(NOT_REPLACED)).groups()
                assert said.startswith(reason)
                assert gateway.pids() == pids
            assert (await client.post(COMPLETIONS, json=large)).status_code == 413


async def test_a_gateway_of_one_process_says_that_it_cannot(tmp_path: Path) -> None:
    async with FakeWorker() as worker, program(configuration(worker), tmp_path) as gateway:
        roll(gateway)
        await gateway.says(ALONE)
        async with gateway.http() as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200

"""Are many streams at once as quick, as bounded and as soon given up as one alone?"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.conftest import configuration
from tests.e2e.callers import COMPLETIONS, COST, STREAMED, Caller
from tests.e2e.observed import limited, observed
from tests.e2e.program import program
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply

TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}
LARGE_EVENT = {"choices": [{"index": 0, "text": "x" * 100_000}]}
AT_ONCE = 100
STALLED = 20
RESIDENT = "process_resident_memory_bytes"
MOST_GROWTH_BYTES = 20_000_000


class InStep:
    """Streams twenty tokens; each waits until the one before has been taken."""

    def __init__(self) -> None:
        self.taken: dict[str, asyncio.Event] = {}

    async def __call__(self, request: Received, reply: Reply) -> None:
        taken = self.taken[request.json()["user"]] = asyncio.Event()
        await reply.stream_head()
        for _ in range(20):
            taken.clear()
            await reply.event(TOKEN)
            await taken.wait()
        await reply.done()

    async def follow(self, client: httpx.AsyncClient, user: str) -> int:
        """One caller's stream, to its end; returns how many tokens came."""
        eager = {"accept-encoding": "gzip, br, zstd"}
        tokens = 0
        asked = {**STREAMED, "user": user}
        async with client.stream("POST", COMPLETIONS, json=asked, headers=eager) as answer:
            assert "content-encoding" not in answer.headers
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-accel-buffering"] == "no"
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    tokens += 1
                    self.taken[user].set()
        return tokens


@pytest.mark.case("S4")
@pytest.mark.usefixtures("either_lane")
async def test_each_event_of_a_hundred_streams_arrives_before_its_worker_makes_the_next() -> None:
    in_step = InStep()
    async with (
        FakeWorker(in_step) as worker,
        observed(worker, workers=limited(worker, max_concurrency=AT_ONCE)) as gateway,
    ):
        async with gateway.http() as client:
            streams = (in_step.follow(client, str(number)) for number in range(AT_ONCE))
            assert await asyncio.gather(*streams) == [20] * AT_ONCE
        await gateway.ended(*["ok"] * AT_ONCE, requests=AT_ONCE, tokens=AT_ONCE * (COST - 8 + 20))


@pytest.mark.case("S2")
@pytest.mark.usefixtures("either_lane")
@pytest.mark.parametrize("leave", [Caller.leave, Caller.reset], ids=["by FIN", "by RST"])
async def test_twenty_who_leave_after_the_head_and_before_a_token_all_stop_the_worker(
    leave: Callable[[Caller], None],
) -> None:
    heads = asyncio.Semaphore(0)

    async def head_only(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        heads.release()
        await reply.peer_closed()

    async with (
        FakeWorker(head_only) as worker,
        observed(worker, workers=limited(worker, max_concurrency=20)) as gateway,
    ):
        async with contextlib.AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(Caller(gateway.url)) for _ in range(20)]
            for caller in callers:
                caller.ask(STREAMED)
            for _ in callers:
                await heads.acquire()
            async with gateway.http() as client:
                await client.get("/health")  # what came before that has been read
            for caller in callers:
                leave(caller)
            await worker.closed_by_peer(20)
        await gateway.ended(*["client_gone"] * 20, requests=20, tokens=20 * PROMPT_TOKENS)
        assert len(worker.requests) == 20


@pytest.mark.case("S8")
async def test_twenty_who_stop_reading_take_little_memory_and_hold_up_nobody(tmp_path: Path) -> None:
    in_step = InStep()
    flooding: list[Reply] = []

    async def script(request: Received, reply: Reply) -> None:
        if request.json()["user"] != "stalled":
            await in_step(request, reply)
            return
        await reply.stream_head()
        flooding.append(reply)
        while True:  # as fast as it is taken; ends by ConnectionResetError
            await reply.event(LARGE_EVENT)

    def sent() -> int:
        return sum(reply.sent_bytes for reply in flooding)

    async with FakeWorker(script) as worker:
        config = configuration(worker, workers=limited(worker, max_concurrency=STALLED + 1))
        async with (
            program(config, tmp_path) as gateway,
            gateway.client() as sdk,
            httpx.AsyncClient(
                base_url=gateway.url, headers=sdk.auth_headers, trust_env=False, verify=False
            ) as client,
        ):
            assert await in_step.follow(client, "alone") == 20
            before = await gateway.metric(RESIDENT)
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(STALLED):
                    caller = await stack.enter_async_context(Caller(gateway.url, receive_bytes=4096))
                    caller.ask({**STREAMED, "user": "stalled"})
                    await caller.head()
                taken = -1
                while taken != sent():  # until nothing more is taken while somebody else is served
                    taken = sent()
                    assert await in_step.follow(client, "beside") == 20
                assert await gateway.metric(RESIDENT) - before < MOST_GROWTH_BYTES
                assert await gateway.metric("gateway_in_flight") == len(flooding) == STALLED
            await worker.closed_by_peer(STALLED)
            await gateway.reaches(0, "gateway_in_flight")

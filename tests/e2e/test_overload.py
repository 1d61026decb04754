"""Does it go on doing useful work while three times as much is asked of it as it can do, and after that?"""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.conftest import KEY, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import GUARD_S, limited
from tests.e2e.program import Program, program
from tests.fakes import FakeWorker, Received, Reply, plain_answer

PLACES = 4
QUEUED = 8
TURNS = 40
RESIDENT = "process_resident_memory_bytes"


class Load:
    """Three times as many calls as there are places come in each turn, whatever became of those before."""

    def __init__(self, gateway: Program, client: httpx.AsyncClient) -> None:
        self.calls: list[asyncio.Task[httpx.Response]] = []
        self._gateway = gateway
        self._client = client
        self._ended = 0

    async def come(self, refused: int) -> None:
        """Of this turn's calls so many are refused, before anything else happens."""
        ask = self._client.post
        turn = [asyncio.create_task(ask(COMPLETIONS, json=QUESTION)) for _ in range(3 * PLACES)]
        self.calls += turn
        await self.end(refused)
        while sum(call.done() for call in turn) < refused:
            await asyncio.wait([call for call in turn if not call.done()], return_when="FIRST_COMPLETED")

    async def end(self, count: int) -> None:
        """Wait until so many more have ended."""
        self._ended += count
        await self._gateway.reaches(self._ended, "gateway_requests_total")


@pytest.mark.case("Q2")
async def test_under_three_times_its_load_it_serves_as_much_as_it_can_and_refuses_the_rest_at_once(
    tmp_path: Path,
) -> None:
    may_answer = asyncio.Semaphore(0)

    async def script(request: Received, reply: Reply) -> None:
        await may_answer.acquire()
        await plain_answer(request, reply)

    async with FakeWorker(script) as worker:
        config = configuration(
            worker,
            workers=limited(worker, max_concurrency=PLACES),
            admission={"max_queued": QUEUED, "tenant_queue_share": 1.0},
        )
        async with (
            program(config, tmp_path) as gateway,
            httpx.AsyncClient(
                base_url=gateway.url,
                headers={"authorization": f"Bearer {KEY}"},
                timeout=GUARD_S,
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
                verify=False,
            ) as client,
        ):
            load = Load(gateway, client)
            resident = []
            for turn in range(TURNS):
                await load.come(refused=2 * PLACES if turn else 0)
                assert await gateway.metric("gateway_queue_depth") == QUEUED
                assert await gateway.metric("gateway_in_flight") == PLACES
                for _ in range(PLACES):
                    may_answer.release()
                await load.end(PLACES)  # a full turn's work is done, however many are refused
                await worker.received((turn + 2) * PLACES)
                resident.append(await gateway.metric(RESIDENT))
            assert resident[-1] <= 1.1 * resident[TURNS // 4]
            for _ in range(QUEUED):
                may_answer.release()
            answers = await asyncio.gather(*load.calls)
            served = [answer for answer in answers if answer.status_code == 200]
            refused = [answer for answer in answers if answer.status_code == 503]
            assert len(served) == len(worker.requests) == (TURNS + 2) * PLACES
            assert len(served) + len(refused) == len(answers)
            for answer in refused:
                assert answer.json()["error"]["code"] == "server_is_overloaded"
                assert 1 <= int(answer.headers["retry-after"]) <= 60
            may_answer.release()
            after = await client.post(COMPLETIONS, json=QUESTION)
            assert (after.status_code, after.headers["x-gateway-queue-ms"]) == (200, "0")

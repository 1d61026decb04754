"""Is it told truly, and at any time, whether a gateway lives and whether it can serve?"""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import MODEL, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import NOWHERE
from tests.e2e.program import Program, program
from tests.fakes import FakeWorker, Received, Reply, answer_probe

ALIVE_AND_READY = (200, 200, 200)
ALIVE_ONLY = (200, 503, 503)


class Health:
    """Of a worker: well, but when a test has the word."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.is_well: asyncio.Queue[bool] = asyncio.Queue()
        self.is_up_to_the_test = False

    async def __call__(self, request: Received, reply: Reply) -> None:
        if request.target == "/health" and self.is_up_to_the_test:
            self.asked.put_nowait(None)
            if not await self.is_well.get():
                reply.close()
                return
        await answer_probe(request, reply)

    async def checked(self, is_well: bool) -> None:
        """The check that waits is answered so, and known: the next one waits."""
        self.is_well.put_nowait(is_well)
        await self.asked.get()


async def told(gateway: Program) -> tuple[int, int, int]:
    """Whether it lives, is ready, and serves."""
    async with gateway.http() as client:
        return (
            (await client.get("/health")).status_code,
            (await client.get("/ready")).status_code,
            (await client.post(COMPLETIONS, json=QUESTION)).status_code,
        )


@pytest.mark.case("D2")
async def test_a_gateway_without_a_worker_lives_and_is_not_ready(tmp_path: Path) -> None:
    config = configuration(workers=[{"id": "w0", "url": NOWHERE, "model": MODEL}])
    async with program(config, tmp_path, up=0) as gateway:
        assert await told(gateway) == ALIVE_ONLY


@pytest.mark.case("D2")
async def test_a_worker_is_out_after_three_missed_checks_and_back_after_one_that_it_passes(
    tmp_path: Path,
) -> None:
    health = Health()
    async with FakeWorker(probe=health) as worker:
        config = configuration(worker, fleet={"failures": 3, "probe_timeout_s": 60})
        async with program(config, tmp_path) as gateway:
            health.is_up_to_the_test = True
            await health.asked.get()
            for _ in range(2):
                await health.checked(False)
                assert await told(gateway) == ALIVE_AND_READY
            await health.checked(False)
            assert await told(gateway) == ALIVE_ONLY
            await health.checked(True)
            assert await told(gateway) == ALIVE_AND_READY
            health.is_up_to_the_test = False
            health.is_well.put_nowait(True)

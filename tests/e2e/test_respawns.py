"""Processes that die again and again: do metrics stay true, whole and as many as they are?"""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.test_processes import Pair, pair
from tests.fakes import FakeWorker

ROUNDS = 8  # each with a process that dies; the pauses before they start again grow


@pytest.mark.timeout(120)
async def test_metrics_stay_true_and_no_more_over_any_number_of_deaths(
    tmp_path: Path, redis_url: str
) -> None:
    async with FakeWorker() as worker, pair(worker, tmp_path, redis_url) as gateway:
        await gateway.ask(4)
        await gateway.program.reaches(4, "gateway_requests_total")
        series, files = set(await gateway.samples()), kept_files(gateway)
        counts = await gateway.counts()
        for _ in range(ROUNDS):
            os.kill(min(gateway.pids()), signal.SIGKILL)
            async with gateway.http(gateway.program.admin_url) as client:
                while len(gateway.pids()) < 2:  # while one is missing, the other one tells of both
                    assert (await client.get("/metrics")).status_code == 200
            after = await gateway.counts()
            assert {name for name, value in counts.items() if after[name] < value} == set()
            counts = after
        assert kept_files(gateway) == files
        assert {name for name in await gateway.samples() if "process" not in name} == {
            name for name in series if "process" not in name
        }
        async with gateway.http() as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
        await gateway.program.reaches(5, "gateway_requests_total")


async def test_a_restart_begins_without_what_was_counted_before(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker:
        async with pair(worker, tmp_path, redis_url) as gateway:
            await gateway.ask(4)
            await gateway.program.reaches(4, "gateway_requests_total")
        async with pair(worker, tmp_path, redis_url) as gateway:
            assert await gateway.program.metric("gateway_requests_total") == 0
            assert await gateway.program.metric("gateway_in_flight") == 0


def kept_files(gateway: Pair) -> set[str]:
    """What the processes keep in the folder that they share, which each of them holds open."""
    links = (os.readlink(path) for path in Path(f"/proc/{min(gateway.pids())}/fd").iterdir())
    folder = next(Path(link) for link in links if "/gateway-" in link and Path(link).is_dir())
    return {path.name for path in folder.iterdir()}

"""Two replicas of four processes each: is a limit one limit over all eight?"""

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.conftest import KEY, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.program import Program, program
from tests.fakes import FakeWorker


@pytest.mark.case("L2")
async def test_of_two_hundred_calls_at_once_the_workers_get_as_many_as_the_limit_says(
    redis_url: str, tmp_path: Path
) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    async with FakeWorker() as worker:
        config = configuration(
            worker,
            server={"processes": 4},
            store={"url": redis_url, "timeout_ms": 2000},
            tenants=[{"id": "acme", "requests_per_minute": 20}],
        )
        for place in places:
            place.mkdir()
        async with program(config, places[0]) as one, program(config, places[1]) as two:
            answers = await asyncio.gather(*(ask(replica) for replica in [one, two] * 100))
            assert Counter(answers) == {200: 20, 429: 180}
            assert len(worker.requests) == 20
            counted = [await replica.metric("gateway_requests_total") for replica in (one, two)]
            assert counted == [100, 100]


async def ask(replica: Program) -> int:
    """Each on a connection of its own, so that all processes get some."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
        return (await client.post(replica.url + COMPLETIONS, json=QUESTION, headers=headers)).status_code

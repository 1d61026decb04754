"""Do processes with the same workers keep to what those can take, all together?"""

import asyncio
from collections.abc import Callable

from tests.conftest import MODEL, Served, configuration, served
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.gates import Gate
from tests.e2e.observed import GUARD_S, POLL_S, limited
from tests.e2e.test_shared_limits import gateways, shared
from tests.fakes import FakeWorker

PLACES = 4


async def until(is_so: Callable[[], bool]) -> None:
    """What other processes have is told by nobody but themselves."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


def places(of: Served) -> int:
    """That this process may fill now."""
    return of.gateway.fleet.capacity(MODEL)


async def ask(of: Served) -> int:
    async with of.http() as client:
        return (await client.post(COMPLETIONS, json=QUESTION)).status_code


async def test_a_worker_that_one_process_has_filled_gets_nothing_from_another(redis_url: str) -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        gateways(2, worker, store=shared(redis_url), workers=limited(worker, max_concurrency=PLACES)) as [
            first,
            second,
        ],
    ):
        await until(lambda: places(first) == places(second) == PLACES)
        asked = [asyncio.create_task(ask(first)) for _ in range(PLACES)]
        await worker.received(PLACES)
        await until(lambda: places(second) == 0)
        waiting = asyncio.create_task(ask(second))
        await until(lambda: sum(second.gateway.admission.depth().values()) == 1)
        assert len(worker.requests) == PLACES
        gate.open.set()
        async with asyncio.timeout(GUARD_S):
            assert await asyncio.gather(*asked, waiting) == [200] * (PLACES + 1)


async def test_what_a_process_had_that_has_ended_is_free_for_the_others(redis_url: str) -> None:
    gate = Gate()
    async with FakeWorker(gate) as worker:
        config = configuration(
            worker, store=shared(redis_url), workers=limited(worker, max_concurrency=PLACES)
        )
        async with served(config) as stays:
            async with served(config) as leaves:
                asked = [asyncio.create_task(ask(leaves)) for _ in range(PLACES)]
                await worker.received(PLACES)
                await until(lambda: places(stays) == 0)
                gate.open.set()
                assert await asyncio.gather(*asked) == [200] * PLACES
            await until(lambda: places(stays) == PLACES)

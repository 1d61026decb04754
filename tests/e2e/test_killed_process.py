"""When a gateway is killed with streams under way: are their slots free again, and only theirs?"""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.conftest import configuration
from tests.e2e.callers import STREAMED, Caller
from tests.e2e.observed import GUARD_S, POLL_S
from tests.e2e.program import program
from tests.fakes import FakeWorker, Received, Reply

LEASE_TTL_S = 3  # the least
LEASES, PROCESSES = "gateway:{acme}:leases", "gateway:processes"
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}


async def endless(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(TOKEN)
    await reply.peer_closed()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    return one, two


async def test_slots_of_a_killed_gateway_are_free_soon_while_others_keep_theirs(
    redis_url: str, places: tuple[Path, Path]
) -> None:
    async with FakeWorker(endless) as worker, Redis.from_url(redis_url, decode_responses=True) as redis:
        config = configuration(
            worker,
            store={"url": redis_url},
            limits={"lease_ttl_s": LEASE_TTL_S},
            tenants=[{"id": "acme", "max_concurrency": 3}],
        )
        async with (
            program(config, places[0]) as killed,
            program(config, places[1]) as other,
            Caller(killed.url) as one,
            Caller(killed.url) as two,
            Caller(other.url) as kept,
        ):
            for caller in (one, two):
                caller.ask(STREAMED)
                await caller.until(b"glad")
            of_killed = set(await redis.zrange(LEASES, 0, -1))
            kept.ask(STREAMED)
            await kept.until(b"glad")
            [of_kept] = set(await redis.zrange(LEASES, 0, -1)) - of_killed
            killed.process.kill()
            await killed.process.wait()
            refused = 0
            while not await streams_through(other.url):
                refused += 1
            assert refused > 0, "nobody knew at once that it is dead"
            async with asyncio.timeout(GUARD_S):
                # A beat of the other's takes off what is over, and Redis tells nobody.
                while (await redis.zcard(PROCESSES), await redis.zrange(LEASES, 0, -1)) != (1, [of_kept]):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)


async def streams_through(url: str) -> bool:
    """Whether one more stream is taken in; it is left at once."""
    async with Caller(url) as caller:
        caller.ask(STREAMED)
        status, _ = await caller.head()
        if status == 200:
            caller.leave()
        else:
            await asyncio.sleep(0.02)
        return status == 200

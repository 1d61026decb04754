"""What does a process take with it when it is killed? Nothing but what it counted after its last batch."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date

import pytest

from gateway.settings import Store
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from tests.gateway.usage.samples import NOON, labels

GUARD_S = 60
TODAY = date(2026, 11, 30)


@dataclass
class Metering:
    """A process that meters (see metering.py), and what it last told."""

    process: Process
    recorded: int = 0
    added: int = 0

    async def read(self, batches: int = sys.maxsize) -> None:
        """Until it has told of so many batches more, or has ended."""
        assert self.process.stdout is not None
        while batches and (line := (await self.process.stdout.readline()).split()):
            setattr(self, line[0].decode(), int(line[1]))
            batches -= line[0] == b"added"

    async def end(self) -> None:
        """In order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.read()
        assert await self.process.wait() == 0


@asynccontextmanager
async def metering(redis_url: str) -> AsyncIterator[Metering]:
    argv = (sys.executable, "-m", "tests.gateway.usage.metering", redis_url)
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE)
    try:
        async with asyncio.timeout(GUARD_S):
            yield Metering(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def in_redis(redis_url: str) -> tuple[int, ...]:
    """Requests and tokens."""
    client = Target(Store(url=redis_url)).client()
    sums = await RedisUsage(client, "gateway", 400, lambda: NOON).sums(TODAY, TODAY)
    await client.aclose()
    return tuple(sums.get(labels(), ()))


@pytest.mark.parametrize("batches", [1, 2, 5])
async def test_a_killed_process_loses_only_what_it_counted_after_its_last_batch(
    redis_url: str, batches: int
) -> None:
    async with metering(redis_url) as told:
        await told.read(batches)
        told.process.kill()
        await told.read()

    requests, prompt_tokens, *_ = await in_redis(redis_url)
    assert 0 < told.added <= requests <= told.recorded
    assert prompt_tokens == 3 * requests


async def test_a_process_that_ends_in_order_loses_nothing(redis_url: str) -> None:
    async with metering(redis_url) as told:
        await told.read(batches=2)
        await told.end()

    assert told.added == told.recorded
    assert await in_redis(redis_url) == (told.recorded, 3 * told.recorded, 0, 0)


async def test_processes_add_to_the_same_sums(redis_url: str) -> None:
    async with metering(redis_url) as one, metering(redis_url) as other:
        for told in (one, other):
            await told.read(batches=1)
        for told in (one, other):
            await told.end()

    both = one.recorded + other.recorded
    assert await in_redis(redis_url) == (both, 3 * both, 0, 0)

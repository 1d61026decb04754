"""The Redis store on a clock of the test's own: the same script, which reads the time from a key."""

import asyncio
import itertools
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis

from gateway import settings
from gateway.model import Quotas, Tenant, Verdict
from gateway.stores.redis.batches import Batches
from gateway.stores.redis.limits import RedisLimits
from gateway.stores.redis.target import Target
from tests.gateway.test_model import Clock

SCRIPT = (files("gateway.stores.redis") / "lua" / "limits.lua").read_text(encoding="utf-8")
REDIS_TIME = "redis.call('TIME')"
BEGAN_S = 1_790_000_000  # what the test's clock calls 0
prefixes = itertools.count()


class ClockedRedis:
    """A LimitStore; `async with`. Nothing is in it at first, unless it has another's prefix."""

    def __init__(
        self, url: str, clock: Clock, lease_ttl_s: float = 1e6, prefix: str = "", process: str = "p1"
    ) -> None:
        self._lease_ttl_s = lease_ttl_s
        self._process = process
        self.prefix = prefix or f"test-{next(prefixes)}"
        self._clock = clock
        self._target = Target(settings.Store(url=url))
        self._backlog: list[tuple[float, tuple[Any, ...]]] = []

    async def __aenter__(self) -> "ClockedRedis":
        self.client: Redis = self._target.client()
        key = f"{self.prefix}:clock"
        assert SCRIPT.count(REDIS_TIME) == 1
        script = SCRIPT.replace(REDIS_TIME, f"redis.call('LRANGE', '{key}', 0, 1)")
        await self._tell_time(self._clock.now)
        batches = Batches(
            self._target,
            prefix=self.prefix,
            process=self._process,
            lease_ttl_s=self._lease_ttl_s,
            timeout_s=1e6,  # the clock leaps
            script=script,
        )
        self._link = batches._link
        self.limits = RedisLimits(batches, self.prefix, lease_ttl_s=1e6)  # nothing is renewed by itself
        await self.limits.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._catch_up()
        await self.limits.__aexit__()
        await self.client.aclose()

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        await self._catch_up()
        return await self.limits.take(lease, tenant, tokens)

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        self._backlog.append((self._clock.now, (lease, tenant, reserved, used)))

    async def look(self, tenant: Tenant) -> Quotas:
        await self._catch_up()
        return await self.limits.look(tenant)

    async def take_and_leave(self, lease: str, tenant: Tenant, tokens: int) -> None:
        """Who asks is gone before the answer comes."""
        await self._catch_up()
        asking = asyncio.create_task(self.limits.take(lease, tenant, tokens))
        while not asking.done() and not self._link.is_busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await self.limits.look(tenant)  # until it is undone

    async def renew(self, tenant: Tenant) -> None:
        await self._catch_up()
        self.limits._renew()
        await self.limits.look(tenant)

    async def lose_connection(self) -> None:
        await self._catch_up()
        self._link._lose("cut by the test")
        while not self.limits.is_up:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def die(self) -> None:
        """As by kill -9: nothing is settled any more."""
        self.limits._heart.cancel()
        await self._link.__aexit__()
        await self.client.aclose()

    async def leases(self, tenant_id: str) -> set[str]:
        return {
            str(name) for name in await self.client.zrange(f"{self.prefix}:{{{tenant_id}}}:leases", 0, -1)
        }

    async def _catch_up(self) -> None:
        """Settle at the time when it was asked for."""
        for now, arguments in self._backlog:
            await self._tell_time(now)
            self.limits.settle(*arguments)
            await self.limits.look(arguments[1])
        self._backlog.clear()
        await self._tell_time(self._clock.now)

    async def _tell_time(self, now: float) -> None:
        key, us = f"{self.prefix}:clock", round((BEGAN_S + now) * 1e6)
        async with self.client.pipeline() as pipeline:
            pipeline.delete(key)
            pipeline.rpush(key, us // 10**6, us % 10**6)
            await pipeline.execute()

"""A store of limits on a real Redis, and what a test wants to know of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from gateway import settings
from gateway.model import Tenant
from gateway.stores.redis.batches import Batches
from gateway.stores.redis.limits import RedisLimits
from gateway.stores.redis.target import Target

GUARD_S = 20.0
PREFIX = "test"
ACME = Tenant("acme", requests_per_minute=1000, tokens_per_minute=100_000, max_concurrency=100)


@dataclass
class Opened:
    limits: RedisLimits
    batches: Batches
    client: Redis
    reasons: list[str] = field(default_factory=list)  # why it went away
    down: asyncio.Event = field(default_factory=asyncio.Event)
    up: asyncio.Event = field(default_factory=asyncio.Event)

    async def leases(self, tenant: str = "acme") -> list[str]:
        return [str(name) for name in await self.client.zrange(f"{PREFIX}:{{{tenant}}}:leases", 0, -1)]

    async def calls(self) -> int:
        """How often the script was run by its hash."""
        stats: dict[str, Any] = await self.client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


@asynccontextmanager
async def opened(
    url: str, *, timeout_s: float = 5.0, lease_ttl_s: float = 30.0, process: str = "p1", **store: Any
) -> AsyncIterator[Opened]:
    target = Target(settings.Store(url=url, **store))
    async with asyncio.timeout(GUARD_S), target.client() as client:
        batches = Batches(
            target, prefix=PREFIX, process=process, lease_ttl_s=lease_ttl_s, timeout_s=timeout_s
        )
        limits = RedisLimits(batches, PREFIX, lease_ttl_s)
        result = Opened(limits, batches, client)

        def went_down(reason: str) -> None:
            result.reasons.append(reason)
            result.up.clear()
            result.down.set()

        limits.on_down = went_down
        limits.on_up = result.up.set
        async with limits:
            yield result

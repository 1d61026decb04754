"""Which stores are compared? The two of the gateway, put together as it does."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway import settings
from gateway.limits import LimitStore
from gateway.model import Tenant
from gateway.stores.fallback import FallbackLimits
from gateway.stores.memory import MemoryStore
from gateway.stores.redis.batches import Batches
from gateway.stores.redis.limits import RedisLimits
from gateway.stores.redis.target import Target


def tenants(count: int) -> list[Tenant]:
    """With every kind of limit there is, none of which is ever reached."""
    return [
        Tenant(
            f"tenant-{number}",
            requests_per_minute=10**9,
            tokens_per_minute=10**9,
            requests_per_day=10**12,
            tokens_per_day=10**12,
            max_concurrency=10**6,
        )
        for number in range(count)
    ]


def in_memory() -> LimitStore:
    """What a gateway without Redis has."""
    return MemoryStore()


@asynccontextmanager
async def in_redis(url: str, on_call: Callable[[float], None]) -> AsyncIterator[LimitStore]:
    """What a gateway with Redis has. Its methods raise StoreUnavailable rather than count elsewhere.

    on_call: is told how long each call to Redis took, in seconds.
    """
    store, lease_ttl_s = settings.Store(url=url, on_failure="closed"), settings.Limits().lease_ttl_s
    batches = Batches(
        Target(store),
        prefix=store.prefix,
        process="benchmark",
        lease_ttl_s=lease_ttl_s,
        timeout_s=store.timeout_ms / 1000,
        observe=on_call,
    )
    async with RedisLimits(batches, store.prefix, lease_ttl_s) as limits:
        yield FallbackLimits(limits, store.on_failure)

"""What stands behind a gateway: Redis, which all processes and replicas share, or this process's own memory?

The only file beside the stores themselves that knows which is which.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.fleet import LocalSwitch, WorkerSwitch
from gateway.limits import LimitStore
from gateway.settings import Settings
from gateway.stores.fallback import FallbackLimits
from gateway.stores.memory import MemoryStore
from gateway.usage import MemoryUsage, UsageStore

if TYPE_CHECKING:
    from gateway.stores.redis.bulletin import Bulletin
    from gateway.stores.redis.peers import Peer, RedisPeers
    from gateway.stores.redis.registry import RedisRegistry

MEMORY = "memory://"


@dataclass(frozen=True)
class Backing:
    """The stores of one gateway. `registry` is None where keys and tenants are those of the file alone.

    among: makes what tells the other processes of this one, and it of them; None where it is alone.
    opened: what is to be entered, in this order, while the stores are in use.
    """

    limits: LimitStore
    usage: UsageStore
    switch: WorkerSwitch
    registry: "RedisRegistry | None" = None
    bulletin: "Bulletin | None" = None
    is_degraded: Callable[[], bool] = lambda: False
    among: "Callable[[Peer], RedisPeers] | None" = None
    opened: Sequence[AbstractAsyncContextManager[object]] = ()

    @contextlib.asynccontextmanager
    async def news(self, on_news: Callable[[str], None], on_gap: Callable[[], None]) -> AsyncIterator[None]:
        """Hear of what others change, for as long as the context lasts. on_gap: something may be missed."""
        if self.bulletin is None:
            yield
        else:
            async with self.bulletin.listening(on_news, on_gap):
                yield


def backing(settings: Settings, process: str, observe: Callable[[float], None]) -> Backing:
    """The stores that the settings name.

    process: this one's name among all. observe: is told how long each step of limits took, in seconds.
    """
    if settings.store.url == MEMORY:
        return Backing(MemoryStore(), MemoryUsage(settings.usage.retention_days), LocalSwitch())
    return _shared(settings, process, observe)


def _shared(settings: Settings, process: str, observe: Callable[[float], None]) -> Backing:
    """In Redis, whose client is loaded only here: it takes an eighth of the time of a start."""
    from gateway.stores.redis.batches import Batches
    from gateway.stores.redis.bulletin import Bulletin
    from gateway.stores.redis.limits import RedisLimits
    from gateway.stores.redis.peers import RedisPeers
    from gateway.stores.redis.registry import RedisRegistry
    from gateway.stores.redis.switch import RedisSwitch
    from gateway.stores.redis.target import Target
    from gateway.stores.redis.usage import RedisUsage

    store = settings.store
    target = Target(store)
    client = target.client()
    batches = Batches(
        target,
        prefix=store.prefix,
        process=process,
        lease_ttl_s=settings.limits.lease_ttl_s,
        timeout_s=store.timeout_ms / 1000,
        observe=observe,
    )
    shared = RedisLimits(batches, store.prefix, settings.limits.lease_ttl_s)
    limits = FallbackLimits(shared, store.on_failure)
    return Backing(
        limits,
        RedisUsage(client, store.prefix, settings.usage.retention_days),
        RedisSwitch(client, store.prefix),
        RedisRegistry(client, store.prefix),
        Bulletin(client, store.prefix),
        lambda: limits.is_degraded,
        functools.partial(
            RedisPeers, target, prefix=store.prefix, process=process, timeout_s=store.timeout_ms / 1000
        ),
        (client, shared),
    )

"""Which workers are to drain? One set in Redis for all processes and replicas."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from gateway.stores.redis.bulletin import channel
from gateway.stores.redis.failures import translated


class RedisSwitch:
    """The set has no expiry: a worker that somebody took off duty stays off until somebody puts it back."""

    def __init__(self, client: Redis, prefix: str = "gateway") -> None:
        self._client = client
        self._set = f"{prefix}:draining"
        self._channel = channel(prefix)

    async def drain(self, worker_id: str) -> None:
        async with self._change() as change:
            change.sadd(self._set, worker_id)

    async def resume(self, worker_id: str) -> None:
        async with self._change() as change:
            change.srem(self._set, worker_id)

    async def draining(self) -> frozenset[str]:
        with translated():
            return frozenset(map(str, await self._client.smembers(self._set)))

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[Pipeline]:
        """A change and the news of it, in one step."""
        async with self._client.pipeline() as change:
            yield change
            change.publish(self._channel, "workers")
            with translated():
                await change.execute()

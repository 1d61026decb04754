"""Do both stores keep every limit there is, and does the one in Redis really ask Redis?"""

import dataclasses

import pytest
import redis.asyncio

from benchmarks.limits import stores
from gateway.errors import StoreUnavailable
from tests.ports import free_ports


def test_a_tenant_has_every_limit_there_is() -> None:
    first, second = stores.tenants(2)
    limits = {
        name: value for name, value in dataclasses.asdict(first).items() if "_per_" in name or "max_c" in name
    }

    assert first.id != second.id
    assert len(limits) == 5
    assert all(value and value >= 10**6 for value in limits.values())


async def test_the_store_in_memory_grants_and_settles() -> None:
    store, (tenant,) = stores.in_memory(), stores.tenants(1)

    assert (await store.take("lease", tenant, 10)).refused == ""
    store.settle("lease", tenant, 10, None)
    left = await store.look(tenant)
    assert left.tokens is not None
    assert left.tokens.remaining == left.tokens.limit


async def test_the_store_in_redis_asks_redis_and_tells_of_each_call(redis_url: str) -> None:
    calls_s: list[float] = []
    (tenant,) = stores.tenants(1)
    async with (
        stores.in_redis(redis_url, calls_s.append) as store,
        redis.asyncio.Redis.from_url(redis_url) as client,
    ):
        before = len(calls_s)
        assert (await store.take("lease", tenant, 10)).refused == ""
        assert len(calls_s) > before
        assert any(tenant.id.encode() in key for key in await client.keys())


async def test_without_redis_nothing_is_granted_elsewhere() -> None:
    (tenant,) = stores.tenants(1)
    async with stores.in_redis(f"redis://127.0.0.1:{free_ports(1)[0]}/0", lambda seconds: None) as store:
        with pytest.raises(StoreUnavailable):
            await store.take("lease", tenant, 10)

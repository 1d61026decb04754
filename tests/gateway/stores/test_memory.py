"""What does the memory store keep beyond what every store must? See tests/contracts for that."""

import time

from gateway.model import Tenant
from gateway.stores.memory import MemoryStore

ACME = Tenant("acme", max_concurrency=2)


async def test_slots_in_use_are_counted_for_each_tenant() -> None:
    store = MemoryStore()
    await store.take("one", ACME, 1)
    await store.take("two", ACME, 1)
    assert (store.leases(ACME), store.leases(Tenant("globex"))) == (2, 0)
    store.settle("one", ACME, 1, 1)
    store.settle("one", ACME, 1, 1)
    assert store.leases(ACME) == 1


async def test_slots_are_counted_also_where_there_is_no_limit() -> None:
    store, tenant = MemoryStore(), Tenant("free")
    await store.take("one", tenant, 1)
    assert store.leases(tenant) == 1


async def test_time_is_the_machines_own_unless_another_clock_is_given() -> None:
    tenant = Tenant("acme", tokens_per_minute=60_000)
    store = MemoryStore()
    began = time.monotonic()
    await store.take("one", tenant, 60_000)
    quota = (await store.look(tenant)).tokens
    assert quota is not None
    assert 60 - (time.monotonic() - began) <= quota.reset_s <= 60

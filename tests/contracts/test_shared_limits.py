"""Do several processes on one Redis grant exactly what the limits hold, whatever happens to them?

A state machine drives two processes and the reference side by side: requests come, leave at once, end or end
twice; time passes; a process is killed and another takes its place; Redis forgets its scripts, connections
are cut.
"""

import asyncio
from collections.abc import Awaitable
from fractions import Fraction
from typing import Any, cast

import uvloop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gateway.model import Tenant
from gateway.stores.rates import is_limited
from tests.contracts.clocked_redis import ClockedRedis
from tests.contracts.reference import Reference
from tests.gateway.test_model import Clock

LEASE_TTL_S = 30
RENEWED_S = 10  # after each so long, a process that lives renews its leases
LIMITS = st.sampled_from([None, 15, 60, 240])
PROCESSES = st.integers(0, 1)


class Processes(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.clock = Clock()
        self.count = 0
        self.stores: list[ClockedRedis] = []
        self.held: dict[str, tuple[ClockedRedis, float]] = {}  # by whom, and when it lapses if that dies

    def run(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return self.runner.run(done())

    @initialize(
        requests=LIMITS,
        tokens=LIMITS,
        daily=st.sampled_from([None, 100]),
        slots=st.sampled_from([None, 3]),
    )
    def begin(self, requests: int | None, tokens: int | None, daily: int | None, slots: int | None) -> None:
        self.tenant = Tenant(
            "acme",
            requests_per_minute=requests,
            tokens_per_minute=tokens,
            tokens_per_day=daily,
            max_concurrency=slots,
        )
        self.reference = Reference(self.tenant)
        first = self.started("")
        self.stores = [first, self.started(first.prefix)]

    def started(self, prefix: str) -> ClockedRedis:
        self.count += 1
        store = ClockedRedis(self.url, self.clock, LEASE_TTL_S, prefix, f"p{self.count}")
        self.run(store.__aenter__())
        return store

    @rule(target=leases, process=PROCESSES, tokens=st.integers(0, 120))
    def take(self, process: int, tokens: int) -> tuple[str, int]:
        self.count += 1
        lease, store = f"r{self.count}", self.stores[process]
        verdict = self.run(store.take(lease, self.tenant, tokens))
        against = self.reference.refuses(tokens)
        assert verdict.refused in against if against else verdict.refused == ""
        if not against:
            self.reference.take(lease, tokens)
            self.held[lease] = (store, self.clock.now + LEASE_TTL_S)
        self.reference.check(verdict.quotas)
        return lease, tokens

    @rule(process=PROCESSES, tokens=st.integers(0, 120))
    def leave_at_once(self, process: int, tokens: int) -> None:
        self.count += 1
        self.run(self.stores[process].take_and_leave(f"r{self.count}", self.tenant, tokens))

    @rule(lease=consumes(leases), used=st.none() | st.integers(0, 200), times=st.integers(1, 2))
    def settle(self, lease: tuple[str, int], used: int | None, times: int) -> None:
        name, tokens = lease
        store, _ = self.held.get(name, (None, 0.0))
        if store not in self.stores:
            return  # refused, or its process is dead
        for _ in range(times):
            store.settle(name, self.tenant, tokens, used)
        self.run(store.look(self.tenant))
        self.reference.settle(name, used)
        del self.held[name]

    @rule(ticks=st.integers(1, 64 * 90))
    def time_passes(self, ticks: int) -> None:
        while ticks > 0:
            step = min(ticks, 64 * RENEWED_S)
            ticks -= step
            self.clock.now += step / 64
            self.reference.refill(Fraction(step, 64))
            for lease, (_, lapses) in list(self.held.items()):
                if lapses <= self.clock.now:
                    del self.held[lease], self.reference.leases[lease]
            for store in self.stores:
                self.renewed(store)

    def renewed(self, store: ClockedRedis) -> None:
        self.run(store.renew(self.tenant))
        for lease, (owner, _) in self.held.items():
            if owner is store:
                self.held[lease] = (store, self.clock.now + LEASE_TTL_S)

    @rule(process=PROCESSES)
    def a_process_dies_and_another_starts(self, process: int) -> None:
        dead = self.stores[process]
        self.run(dead.die())
        self.stores[process] = self.started(dead.prefix)

    @rule()
    def redis_forgets_its_scripts(self) -> None:
        self.run(self.stores[0].client.script_flush())

    @rule()
    def connections_are_cut(self) -> None:
        for store in self.stores:
            self.run(store.lose_connection())
            self.renewed(store)

    @invariant()
    def both_see_what_the_reference_says(self) -> None:
        for store in self.stores:
            self.reference.check(self.run(store.look(self.tenant)))
        if self.stores and is_limited(self.tenant):
            assert self.run(self.stores[0].leases("acme")) == set(self.reference.leases)

    def teardown(self) -> None:
        for store in self.stores:
            self.run(store.__aexit__())
        self.runner.close()


def test_processes_that_share_a_redis_grant_exactly_what_the_limits_hold(redis_url: str) -> None:
    machine = cast(type[RuleBasedStateMachine], lambda: Processes(redis_url))
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )

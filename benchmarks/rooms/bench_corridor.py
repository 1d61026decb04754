"""What holds the rooms together: the request's record, its exchange with the caller, and the walk from room
to room, with rooms that do nothing."""

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.rooms.conftest import Timed
from benchmarks.rooms.ends import JSON, Lease, Visitor, ignore
from benchmarks.rooms.stand import (
    ANSWER,
    ANSWER_BODY,
    CLOCK,
    USAGE,
    Case,
    case,
    closed,
    crew,
    journal,
)
from benchmarks.rooms.wires import Loop
from gateway import parts
from gateway.accounting import Ledger
from gateway.dispatch import Dispatcher
from gateway.endpoints import Completions
from gateway.limits import RateLimiter
from gateway.model import Caller, Endpoint, Fields, Incoming, Job, Trip, Usage
from gateway.pipeline import Corridor, Exchange
from gateway.relay import Relay
from gateway.routing import POLICIES
from gateway.stores.memory import MemoryStore
from gateway.underway import UnderWay
from gateway.usage import MemoryUsage, Meter


class Rooms:
    """All of them at once. Each hands out what is ready."""

    def __init__(self, of: Case) -> None:
        self._caller = of.caller
        self._job = of.job
        self._lease = Lease(of.trip().quotas)
        self.last: Trip

    def recognise(self, fields: Fields) -> Caller:
        return self._caller

    def read(self, incoming: Incoming, body: bytes, caller: Caller) -> Job:
        return self._job

    def learn(self, job: Job, usage: Usage) -> None: ...

    async def reserve(self, job: Job) -> Lease:
        return self._lease

    async def enter(self, job: Job, trip: Trip) -> Lease:
        return self._lease

    async def open(self, job: Job, turn: Lease, trip: Trip) -> Lease:
        trip.worker = "w0"
        return self._lease

    def ended(self, member: object, trip: Trip) -> None: ...

    async def run(self, answer: Lease, job: Job, outlet: Exchange, trip: Trip, place: object) -> None:
        trip.outcome = "ok"
        await outlet.reply(200, [JSON], ANSWER_BODY)
        trip.usage = USAGE

    def close(self, trip: Trip) -> None:
        self.last = trip


@dataclass(frozen=True, slots=True)
class Walk:
    """One request after the other through a corridor, by a caller who costs nothing."""

    of: Case
    completions: Completions

    async def __call__(self, count: int) -> None:
        line = Visitor(self.of.fields, self.of.body, cast("asyncio.Task[None]", asyncio.current_task()))
        for _ in range(count):
            await self.completions.serve(line)


def walk(of: Case, corridor: Corridor, ledger: Ledger) -> Walk:
    rules = of.settings.server
    under_way = UnderWay(CLOCK, rules.client_stall_s)
    return Walk(of, Completions(Endpoint.CHAT, corridor, ledger, rules, CLOCK, under_way))


def bench_corridor(loop: Loop, timed: Timed) -> None:
    of = case()
    rooms = cast(Any, Rooms(of))
    timed(walk(of, Corridor(rooms, rooms, rooms, rooms, rooms, rooms, rooms), rooms))
    assert rooms.last.outcome == "ok"
    assert rooms.last.charged == USAGE


def bench_together(loop: Loop, timed: Timed) -> None:
    """The same with the real rooms, each after the other, before a worker that answers at once."""
    of = case()
    rules, log = of.settings.routing, journal()
    counts = Ledger(CLOCK, log.write, ignore, Meter(MemoryUsage(30)).record)
    fleet, clients = crew(of.settings)
    loop.hears = lambda protocol: lambda data: protocol.data_received(ANSWER)
    dispatcher = Dispatcher(fleet, POLICIES[rules.policy], clients, counts, CLOCK, rules)
    admission = parts.admission(of.settings, dispatcher, fleet, counts.queued, CLOCK)
    fleet.on_room = admission.wake
    corridor = Corridor(
        parts.authenticator(of.settings, None, b"salt"),
        parts.intake(of.settings, parts.catalogue(of.settings)),
        RateLimiter(MemoryStore()),
        admission,
        dispatcher,
        Relay(CLOCK),
        counts,
    )
    timed(walk(of, corridor, counts))
    counts.fold()
    log.flush()
    assert {labels[-1] for labels in counts.requests} == {"ok"}
    loop.run_until_complete(closed(clients))

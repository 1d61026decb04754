"""The rooms that a plain request passes, each by itself."""

import pytest

from benchmarks.rooms.conftest import Timed
from benchmarks.rooms.ends import Place, PlainAnswer, Taker, Unmoved, ignore
from benchmarks.rooms.stand import (
    ANSWER,
    ANSWER_BODY,
    CLOCK,
    USAGE,
    case,
    closed,
    crew,
    journal,
    ledger,
    up,
)
from benchmarks.rooms.wires import Loop
from gateway import parts
from gateway.accounting import Ledger
from gateway.admission import Admission
from gateway.dispatch import Dispatcher
from gateway.limits import RateLimiter
from gateway.relay import Relay
from gateway.routing import POLICIES
from gateway.stores.memory import MemoryStore
from gateway.upstream.response import ResponseReader
from gateway.usage import MemoryUsage, Meter


def bench_recognise(timed: Timed) -> None:
    of = case()
    auth = parts.authenticator(of.settings, None, b"salt")

    async def recognise(count: int) -> None:
        for _ in range(count):
            auth.recognise(of.fields)

    timed(recognise)


def bench_intake(timed: Timed) -> None:
    of = case()
    intake = parts.intake(of.settings, parts.catalogue(of.settings))

    async def read(count: int) -> None:
        for _ in range(count):
            intake.read(of.incoming, of.body, of.caller)

    timed(read)


def bench_learn(timed: Timed) -> None:
    of = case()
    intake = parts.intake(of.settings, parts.catalogue(of.settings))

    async def learn(count: int) -> None:
        for _ in range(count):
            intake.learn(of.job, USAGE)

    timed(learn)


def bench_limits(timed: Timed) -> None:
    job = case().job
    limits = RateLimiter(MemoryStore())

    async def reserve(count: int) -> None:
        for _ in range(count):
            with await limits.reserve(job) as reservation:
                reservation.charge(USAGE)

    timed(reserve)


def bench_admission(timed: Timed) -> None:
    of = case()
    trip = of.trip()
    fleet = up(of.settings)
    place = Place()
    admission = Admission(
        of.settings.admission,
        lambda job, waited_s: place,
        CLOCK,
        capacity=fleet.capacity,
        is_confined=fleet.is_confined,
    )

    async def enter(count: int) -> None:
        for _ in range(count):
            with await admission.enter(of.job, trip):
                pass

    timed(enter)


@pytest.mark.parametrize("workers", [2, 16])
def bench_place(workers: int, timed: Timed) -> None:
    of = case(workers=workers)
    fleet = up(of.settings)
    rules = of.settings.routing
    dispatcher = Dispatcher(fleet, POLICIES[rules.policy], {}, ledger(), CLOCK, rules)
    fleet.on_room = parts.admission(of.settings, dispatcher, fleet, ignore, CLOCK).wake
    for number, name in enumerate(fleet.members):
        for _ in range(number % 8 + 1):
            fleet.occupy(name, of.job).prompt_done()

    async def place(count: int) -> None:
        for _ in range(count):
            slot = dispatcher.place(of.job)
            assert slot is not None
            slot.prompt_done()
            slot.close()

    timed(place)


def bench_worker(loop: Loop, timed: Timed) -> None:
    """The worker answers while the request is being written, so nobody waits."""
    of = case()
    trip = of.trip()
    fleet, clients = crew(of.settings)
    rules = of.settings.routing
    dispatcher = Dispatcher(fleet, POLICIES[rules.policy], clients, ledger(), CLOCK, rules)
    admission = parts.admission(of.settings, dispatcher, fleet, ignore, CLOCK)
    loop.hears = lambda protocol: lambda data: protocol.data_received(ANSWER)

    async def ask(count: int) -> None:
        with await admission.enter(of.job, trip) as turn:
            for _ in range(count):
                with await dispatcher.open(of.job, turn, trip) as answer:
                    assert answer.take() == ANSWER_BODY

    timed(ask)
    loop.run_until_complete(closed(clients))


def bench_reader(timed: Timed) -> None:
    reader = ResponseReader()

    async def read(count: int) -> None:
        for _ in range(count):
            reader.start()
            reader.feed(ANSWER)
            reader.take()

    timed(read)


def bench_relay(timed: Timed) -> None:
    of = case()
    trip = of.trip()
    relay, answer, taker, watcher = Relay(CLOCK), PlainAnswer(ANSWER_BODY), Taker(), Unmoved()

    async def run(count: int) -> None:
        for _ in range(count):
            await relay.run(answer, of.job, taker, trip, watcher)

    timed(run)
    assert trip.usage == USAGE


def bench_accounting(loop: Loop, timed: Timed) -> None:
    trip = case().trip()
    log = journal()
    counts = Ledger(CLOCK, log.write, ignore, Meter(MemoryUsage(30)).record)  # puts off, as under load

    async def close(count: int) -> None:
        for _ in range(count):
            counts.queued(0, 0.0, "served")
            counts.close(trip)
        counts.fold()
        log.flush()

    timed(close)

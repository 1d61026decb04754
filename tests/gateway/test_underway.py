"""Can exchanges be waited for and be sent away, and are they looked after meanwhile?"""

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from gateway.errors import Draining, GatewayError
from gateway.exchange import Exchange
from gateway.model import Quotas, Trip
from gateway.underway import LOOKS, UnderWay
from tests.gateway.test_model import Clock, job, trip

HEARTBEAT_S = 40.0
LOOK_S = HEARTBEAT_S / LOOKS
FAREWELL = Draining("Bye.", retry_after_s=1)


class Leaving:
    """What under way asks of an exchange."""

    def __init__(self, sending_since: float | None = None, of: Trip | None = None) -> None:
        self.sending_since = sending_since
        self.trip = of or trip()
        self.left: list[tuple[str, GatewayError | None]] = []

    def leave(self, why: str, farewell: GatewayError | None = None) -> None:
        self.left.append((why, farewell))


@dataclass
class Progress:
    """Of a stream."""

    events: int = 0
    may_be_inside: bool = False


class Waiting(Leaving):
    """Waits for a stream, unless `of` says otherwise."""

    def __init__(self, clock: Clock, **of: Any) -> None:
        streamed = {"job": job(stream=True), "quotas": Quotas()}
        super().__init__(of=trip(began=clock.now, **(streamed | of)))
        self.clock = clock
        self.beats: list[float] = []  # when each came

    def beat(self) -> None:
        self.beats.append(self.clock.now)


def under_way(*exchanges: Any, clock: Clock | None = None, **limits: float) -> UnderWay:
    made = UnderWay(clock or Clock(), **({"stall_s": 60.0} | limits))
    for exchange in exchanges:
        made.add(cast(Exchange, exchange))
    return made


def looking(made: UnderWay, clock: Clock, looks: int) -> None:
    """Time passes, and there is a look as often as there should be."""
    for _ in range(looks):
        clock.now += LOOK_S
        made.look()


async def test_nothing_is_under_way_at_first() -> None:
    made = under_way()
    assert len(made) == 0
    await made.empty()


async def test_whoever_waits_for_the_end_waits_for_the_last() -> None:
    first, last = (cast(Exchange, Leaving()) for _ in range(2))
    made = under_way(first, last)
    waiting = asyncio.create_task(made.empty())
    made.discard(first)
    await asyncio.sleep(0)
    assert (len(made), waiting.done()) == (1, False)
    made.discard(last)
    made.discard(last)
    await waiting


async def test_whoever_comes_later_is_waited_for_again() -> None:
    exchange = cast(Exchange, Leaving())
    made = under_way(exchange)
    made.discard(exchange)
    made.add(exchange)
    waiting = asyncio.create_task(made.empty())
    await asyncio.sleep(0)
    assert not waiting.done()
    made.discard(exchange)
    await waiting


async def test_all_are_sent_away_with_a_farewell() -> None:
    exchanges = [Leaving(), Leaving(sending_since=1.0)]
    under_way(*exchanges).send_away(FAREWELL)
    assert [of.left for of in exchanges] == [[("draining", FAREWELL)]] * 2


async def test_an_exchange_may_end_while_the_others_are_sent_away() -> None:
    made = under_way()

    class Ending(Leaving):
        def leave(self, why: str, farewell: GatewayError | None = None) -> None:
            super().leave(why, farewell)
            made.discard(cast(Exchange, self))

    exchanges = [Ending(sending_since=0.0) for _ in range(3)]
    for of in exchanges:
        made.add(cast(Exchange, of))
    made.send_away(FAREWELL)
    assert (len(made), [len(of.left) for of in exchanges]) == (0, [1, 1, 1])
    for of in exchanges:
        made.add(cast(Exchange, of))
    made.look()
    assert (len(made), [len(of.left) for of in exchanges]) == (0, [2, 2, 2])


@pytest.mark.parametrize(("waited_s", "is_cut"), [(None, False), (0, False), (60, False), (60.1, True)])
async def test_only_who_has_taken_nothing_for_too_long_is_cut(waited_s: float | None, is_cut: bool) -> None:
    clock = Clock()
    exchange = Leaving(None if waited_s is None else clock.now)
    clock.now += waited_s or 0
    under_way(exchange, stall_s=60, clock=clock).look()
    assert exchange.left == ([("client_stalled", None)] if is_cut else [])


async def test_callers_are_looked_after_again_and_again() -> None:
    clock = Clock()
    found = asyncio.Event()

    class Found(Leaving):
        def leave(self, why: str, farewell: GatewayError | None = None) -> None:
            super().leave(why, farewell)
            found.set()

    exchange = Found(sending_since=clock.now)
    made = under_way(exchange, stall_s=0.004, clock=clock)
    watching = asyncio.create_task(made.watch())
    for _ in range(2):
        found.clear()
        clock.now += 1
        await found.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert exchange.left[0] == ("client_stalled", None)


@pytest.mark.parametrize(("passed_s", "is_cut"), [(0, False), (3600, False), (3600.1, True)])
async def test_only_what_has_taken_too_long_as_a_whole_is_cut_and_its_caller_told(
    passed_s: float, is_cut: bool
) -> None:
    clock = Clock()
    exchange = Leaving(of=trip(began=clock.now))
    clock.now += passed_s
    under_way(exchange, request_s=3600, clock=clock).look()
    told = [(why, farewell and farewell.message) for why, farewell in exchange.left]
    message = "This request was not complete within 3600 s, the limit here. It was stopped. "
    assert told == ([("request_timeout", message + "Ask for fewer tokens at once.")] if is_cut else [])


async def test_who_takes_nothing_is_cut_as_that_even_if_the_whole_took_too_long() -> None:
    clock = Clock()
    exchange = Leaving(clock.now, trip(began=clock.now))
    clock.now += 4000
    under_way(exchange, request_s=3600, clock=clock).look()
    assert exchange.left == [("client_stalled", None)]


# Heartbeats


async def test_without_heartbeats_nobody_hears_one() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    looking(under_way(waiting, clock=clock), clock, 5 * LOOKS)
    assert waiting.beats == []


async def test_who_waits_for_a_stream_hears_of_it_as_often_as_it_should() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    began = clock.now
    looking(under_way(waiting, clock=clock, heartbeat_s=HEARTBEAT_S), clock, 3 * LOOKS)
    assert waiting.beats == [began + n * HEARTBEAT_S for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "of", [{"job": None}, {"job": job(stream=False)}, {"quotas": None}], ids=["unread", "plain", "not let in"]
)
async def test_nobody_else_hears_one(of: dict[str, Any]) -> None:
    clock = Clock()
    waiting = Waiting(clock, **of)
    looking(under_way(waiting, clock=clock, heartbeat_s=HEARTBEAT_S), clock, 3 * LOOKS)
    assert waiting.beats == []


async def test_nobody_hears_one_while_events_come() -> None:
    clock = Clock()
    progress = Progress()
    waiting = Waiting(clock, progress=progress)
    made = under_way(waiting, clock=clock, heartbeat_s=HEARTBEAT_S)
    for _ in range(5):
        progress.events += 1
        looking(made, clock, LOOKS - 1)
    assert waiting.beats == []
    looking(made, clock, 1)  # the event came right after the look before that which met it, for all we know
    assert waiting.beats == [clock.now]


async def test_nobody_hears_one_who_may_be_within_an_event() -> None:
    clock = Clock()
    waiting = Waiting(clock, progress=Progress(1, may_be_inside=True))
    looking(under_way(waiting, clock=clock, heartbeat_s=HEARTBEAT_S), clock, 3 * LOOKS)
    assert waiting.beats == []


async def test_who_has_ended_is_not_kept() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    made = under_way(waiting, clock=clock, heartbeat_s=HEARTBEAT_S)
    made.look()
    made.discard(cast(Exchange, waiting))
    looking(made, clock, 2 * LOOKS)
    assert (waiting.beats, made._quiet) == ([], {})

"""Does a process that is to end say so first, then refuse, then wait, and no longer than it may?"""

import asyncio
import time
from typing import cast

import pytest

from gateway import ending, settings
from gateway.accepting import LEAVING, Loads, Place
from gateway.callers import Callers
from gateway.ending import Ending
from gateway.errors import GatewayError
from gateway.exchange import Exchange
from gateway.underway import UnderWay

LONG_S = 3600.0


class Server:
    """A port, with one connection, which is idle if it does not stay."""

    def __init__(self, stays: bool) -> None:
        self.told: list[str] = []
        self.connections = [self]
        self.stays = stays

    def part(self) -> None:
        self.told.append("part")

    def leave(self) -> None:
        self.told.append("leave")

    def close_idle(self, since: float) -> None:
        if not self.stays:
            self.connections = []


class Process:
    """One that ends, with a request under way."""

    def __init__(self, *, drain_s: float = LONG_S, settle_s: float = LONG_S, stays: bool = False) -> None:
        self.refuses = False
        self.under_way = UnderWay(time.monotonic, LONG_S)
        self.under_way.add(cast(Exchange, self))
        self.sent_away_by = ""
        self.hears = True
        self.server = Server(stays)
        self.loads = Loads(1)
        callers = Callers()
        callers.servers.append(self.server)
        rules = settings.Server(drain_s=drain_s, settle_s=settle_s)
        self.ending = Ending(rules, self, self.under_way, callers, Place(self.loads, 0))

    @property
    def state(self) -> tuple[bool, bool]:
        """Whether nothing new should come, and whether it is refused."""
        return self.ending.has_begun, self.refuses

    def drain(self) -> None:
        """As the queue does."""
        self.refuses = True

    def end_request(self) -> None:
        self.under_way.discard(cast(Exchange, self))

    def leave(self, why: str, farewell: GatewayError) -> None:
        """As the request does."""
        self.sent_away_by = farewell.code
        if self.hears:
            self.end_request()


def now() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def never() -> asyncio.Event:
    return asyncio.Event()


# Told to stop


async def test_first_nothing_new_should_come_but_what_comes_is_served() -> None:
    process, enough = Process(), asyncio.Event()
    settling = asyncio.create_task(process.ending.settle(enough))
    await asyncio.sleep(0)
    assert process.state == (True, False)
    assert process.server.told == ["part"]
    assert process.server.connections != [], "nobody is sent away yet"
    assert process.loads.lighter(2 * LEAVING).keys() == {0}, "it accepts what nobody else does"
    enough.set()
    await settling
    assert process.sent_away_by == ""


@pytest.mark.parametrize(
    ("settle_s", "drain_s"), [(0.0, LONG_S), (0.01, LONG_S), (LONG_S, 0.01), (LONG_S, 0)]
)
async def test_that_takes_no_longer_than_it_may_nor_than_all(settle_s: float, drain_s: float) -> None:
    await Process(settle_s=settle_s, drain_s=drain_s).ending.settle(never())


async def test_then_what_comes_is_refused_and_what_is_under_way_ends() -> None:
    process = Process()
    await process.ending.settle(now())
    draining = asyncio.create_task(process.ending.drain(never()))
    while process.server.connections:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    assert process.state == (True, True)
    assert process.server.told == ["part"], "once"
    assert not draining.done()
    process.end_request()
    await draining
    assert process.sent_away_by == ""


async def test_what_settling_took_is_not_there_for_the_drain() -> None:
    process = Process(drain_s=0.05)
    await process.ending.settle(never())
    until = process.ending._until
    await process.ending.drain(never())
    assert process.sent_away_by == "draining"
    assert process.ending._until == until


async def test_a_drain_without_settling_is_as_good() -> None:
    process = Process(drain_s=0.01)
    await process.ending.drain(never())
    assert process.state == (True, True)
    assert process.server.told == ["part"]
    assert process.sent_away_by == "draining"


async def test_who_is_in_a_hurry_waits_for_nobody() -> None:
    process = Process(stays=True)
    await process.ending.drain(now())
    assert process.sent_away_by == "draining"


async def test_nobody_is_waited_for_who_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "LAST_WORDS_S", 0.01)
    process = Process()
    process.hears = False
    await process.ending.drain(now())
    assert process.sent_away_by == "draining"
    assert len(process.under_way) == 1


# Replaced


async def test_where_a_successor_serves_nobody_is_refused() -> None:
    process = Process()
    retiring = asyncio.create_task(process.ending.retire())
    while process.server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert process.server.told == ["leave", "part"]
    process.end_request()
    await retiring
    assert process.state == (False, False)
    assert process.sent_away_by == ""


async def test_whoever_stays_too_long_is_sent_away() -> None:
    process = Process(drain_s=0.01, stays=True)
    await process.ending.retire()
    assert process.sent_away_by == "draining"


async def test_one_that_was_replaced_may_be_told_to_stop_as_well() -> None:
    process = Process(stays=True)
    retiring = asyncio.create_task(process.ending.retire())
    await asyncio.sleep(0)
    retiring.cancel()
    await asyncio.wait([retiring])
    await process.ending.settle(now())
    await process.ending.drain(now())
    assert process.state == (True, True)
    assert process.sent_away_by == "draining"

"""Can exchanges be waited for, be sent away, and be found when their callers stop reading?"""

import asyncio
from typing import Any, cast

import pytest

from gateway.errors import Draining, GatewayError
from gateway.exchange import Exchange
from gateway.underway import UnderWay
from tests.gateway.test_model import Clock

FAREWELL = Draining("Bye.", retry_after_s=1)


class Leaving:
    """What under way asks of an exchange."""

    def __init__(self, sending_since: float | None = None) -> None:
        self.sending_since = sending_since
        self.left: list[tuple[str, GatewayError | None]] = []

    def leave(self, why: str, farewell: GatewayError | None = None) -> None:
        self.left.append((why, farewell))


def under_way(*exchanges: Any, stall_s: float = 60, clock: Clock | None = None) -> UnderWay:
    made = UnderWay(clock or Clock(), stall_s)
    for exchange in exchanges:
        made.add(cast(Exchange, exchange))
    return made


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
    made.cut_stalled()
    assert (len(made), [len(of.left) for of in exchanges]) == (0, [2, 2, 2])


@pytest.mark.parametrize(("waited_s", "is_cut"), [(None, False), (0, False), (60, False), (60.1, True)])
async def test_only_who_has_taken_nothing_for_too_long_is_cut(waited_s: float | None, is_cut: bool) -> None:
    clock = Clock()
    exchange = Leaving(None if waited_s is None else clock.now)
    clock.now += waited_s or 0
    under_way(exchange, stall_s=60, clock=clock).cut_stalled()
    assert exchange.left == ([("client_stalled", None)] if is_cut else [])


async def test_stalled_callers_are_looked_for_again_and_again() -> None:
    clock = Clock()
    found = asyncio.Event()

    class Found(Leaving):
        def leave(self, why: str, farewell: GatewayError | None = None) -> None:
            super().leave(why, farewell)
            found.set()

    exchange = Found(sending_since=clock.now)
    made = under_way(exchange, stall_s=0.004, clock=clock)
    watching = asyncio.create_task(made.watch_for_stalls())
    for _ in range(2):
        found.clear()
        clock.now += 1
        await found.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert exchange.left[0] == ("client_stalled", None)

"""Is the engine's virtual time bound to the loop's, at the speed that was asked for?"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from benchmarks.simulator.asked import Asked, Refused
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.request import Event, Limits, Request
from benchmarks.simulator.series import Series
from benchmarks.simulator.worker import Worker

SECOND = Costs(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # a step


class Loop:
    """Its time stands still but for `to`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, asyncio.TimerHandle]] = []
        self._callback: Callable[[], None]

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        self._callback = callback
        self.due.append((when, asyncio.get_running_loop().call_later(3600, callback)))
        return self.due[-1][1]

    def to(self, now_s: float) -> None:
        self.now_s = now_s
        self._callback()


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    still = Loop()
    yield still
    for _, timer in still.due:
        timer.cancel()


def worker(loop: Loop, speed: float, max_queued: int | None = None) -> Worker:
    engine = Engine(Limits(), SECOND)
    return Worker(loop, engine, Series("qwen", engine), speed, max_queued)


def asked(tokens: int) -> Asked:
    return Asked(False, True, False, "length", Request(16, tokens))


async def test_a_virtual_second_is_as_short_as_the_speed_says(loop: Loop) -> None:
    heard: list[Event] = []
    one = worker(loop, speed=4.0)
    loop.now_s = 110.0

    one.submit(asked(3), heard.append)
    assert loop.due[-1][0] == 110.0
    loop.to(110.0)
    assert [when_s for when_s, _ in loop.due[1:]] == [110.25]
    loop.to(110.5)

    assert [event.time_s for event in heard] == [41.0, 42.0]  # virtual: four times the ten seconds before
    assert [when_s for when_s, _ in loop.due[2:]] == [110.75]
    loop.to(110.75)
    assert len(loop.due) == 3  # nothing left to wait for
    one.stop()


async def test_it_tells_how_late_it_was_at_worst(loop: Loop) -> None:
    one = worker(loop, speed=1.0)
    one.submit(asked(4), lambda event: None)
    for now_s in (100.0, 101.0, 103.5, 104.25):
        loop.to(now_s)

    assert b"\nsimulator:late_seconds_max 1.5\n" in one.metrics


async def test_one_timer_runs_for_all_requests_and_is_cancelled_at_the_end(loop: Loop) -> None:
    one = worker(loop, speed=1.0)
    one.submit(asked(3), lambda event: None)
    one.submit(asked(3), lambda event: None)
    ((_, timer),) = loop.due

    one.stop()
    one.stop()

    assert timer.cancelled()


async def test_requests_that_have_ended_or_left_make_room_in_the_queue(loop: Loop) -> None:
    one = worker(loop, speed=1.0, max_queued=1)
    first, second = asked(1), asked(5)
    one.submit(first, lambda event: None)
    with pytest.raises(Refused) as refused:
        one.submit(second, lambda event: None)
    loop.to(100.0)
    loop.to(101.0)
    one.submit(second, lambda event: None)
    one.abort(second.request)
    one.submit(asked(1), lambda event: None)

    assert refused.value.status == 503
    one.stop()

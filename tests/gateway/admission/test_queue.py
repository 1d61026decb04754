"""Does everybody who waits get a place in order, and does no place get lost?"""

import asyncio
import time

import pytest

from gateway import settings
from gateway.admission import Admission
from gateway.errors import Draining, NoWorker, Overloaded
from gateway.model import Trip
from tests.gateway.admission.house import House, Place, house
from tests.gateway.test_model import Clock, job, trip


async def test_who_waits_longest_is_served_first() -> None:
    async with house() as at:
        await at.queue("a", "b", "c")
        assert at.waiting() == 3
        for _ in range(3):
            at.let_in()
        assert at.given == ["a", "b", "c"]
        assert await at.outcomes() == ["a", "b", "c"]


async def test_as_many_are_served_at_once_as_there_are_places() -> None:
    async with house() as at:
        await at.queue("a", "b", "c")
        at.let_in(2)
        assert at.given == ["a", "b"]


async def test_who_comes_later_does_not_overtake_those_who_wait() -> None:
    async with house() as at:
        await at.queue("a")
        at.free["small"] += 1  # free, and nobody has been told yet
        await at.queue("b")
        assert at.given == ["a"]


async def test_a_queue_for_one_model_holds_up_no_other() -> None:
    async with house({"large": 1}) as at:
        await at.queue("a")
        await at.queue("b", model="large")
        assert at.given == ["b"]
        await at.queue("c", model="large")
        at.let_in(1, "large")
        assert at.given == ["b", "c"]
        assert not at.tasks[0].done()


async def test_waking_a_model_that_nobody_waits_for_does_nothing() -> None:
    async with house({"small": 1}) as at:
        at.admission.wake("small")
        assert (at.given, at.free["small"]) == ([], 1)


async def test_the_depth_is_told_by_bucket() -> None:
    async with house() as at:
        await at.queue("a", "b", bucket=0)
        await at.queue("c", bucket=2)
        assert at.admission.depth() == {0: 2, 2: 1}
        at.let_in(3)
        await at.outcomes()
        assert not any(at.admission.depth().values())


async def test_the_wait_is_noted_for_the_answer_and_for_the_metrics() -> None:
    async with house() as at:
        walked = trip()
        entering = asyncio.ensure_future(at.admission.enter(job(bucket=1), walked))
        await asyncio.sleep(0)
        at.clock.now += 2.5
        at.let_in()
        at.kept.append(await entering)
        assert walked.queue_s == 2.5
        assert at.waits == [(1, 2.5, "served")]


async def test_a_place_that_comes_free_goes_to_the_next() -> None:
    async with house({"small": 1}) as at:
        with await at.admission.enter(job(id="first"), trip()):
            await at.queue("second")
        at.admission.wake("small")
        assert at.given == ["first", "second"]


async def test_who_leaves_while_waiting_takes_no_place() -> None:
    async with house() as at:
        await at.queue("a", "b", "c")
        at.tasks[1].cancel()
        await asyncio.sleep(0)
        at.let_in(2)
        assert at.given == ["a", "c"]
        assert await at.outcomes() == ["a", asyncio.CancelledError, "c"]
        assert at.waits == [(0, 0.0, "client_gone"), (0, 0.0, "served"), (0, 0.0, "served")]


async def test_who_leaves_in_the_instant_in_which_the_place_comes_gives_it_back() -> None:
    async with house() as at:
        await at.queue("a")
        at.let_in()
        at.tasks[0].cancel()
        assert await at.outcomes() == [asyncio.CancelledError]
        assert (at.given, at.free["small"]) == (["a"], 1)


async def test_a_place_that_comes_to_one_who_has_just_left_goes_to_the_next() -> None:
    async with house() as at:
        await at.queue("a", "b")
        at.tasks[0].cancel()
        at.let_in()
        assert await at.outcomes() == [asyncio.CancelledError, "b"]
        assert at.free["small"] == 0


async def test_who_leaves_in_the_instant_in_which_the_last_worker_goes_leaves_nothing_behind() -> None:
    async with house() as at:
        await at.queue("a")
        at.is_up = False
        at.admission.wake("small")
        at.tasks[0].cancel()
        assert await at.outcomes() == [asyncio.CancelledError]


async def test_when_the_first_leaves_a_free_place_is_not_forgotten() -> None:
    async with house() as at:
        await at.queue("a", "b")
        at.free["small"] += 1  # free, and nobody has been told yet
        at.tasks[0].cancel()
        assert await at.outcomes() == [asyncio.CancelledError, "b"]


async def test_who_waits_too_long_is_refused() -> None:
    async with house(max_wait_s=0.01) as at:
        with pytest.raises(Overloaded, match=r"within 0\.01 s\. Try again in 1 s") as caught:
            await at.keep(job())
        assert caught.value.retry_after_s == 1
        assert at.waits == [(0, 0.0, "server_is_overloaded")]
        at.let_in()
        assert at.given == []


async def test_a_place_that_comes_in_the_instant_of_the_time_out_is_given_back() -> None:
    async with house(max_wait_s=0.01) as at:
        asyncio.get_running_loop().call_later(0.005, at.let_in)
        entering = asyncio.create_task(at.keep(job()))
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - the loop must stand still, so that both timers are due at once
        with pytest.raises(Overloaded):
            await entering
        assert (at.given, at.free["small"]) == (["req-1"], 1)


async def test_when_the_last_worker_goes_all_who_wait_for_it_hear_of_it() -> None:
    async with house() as at:
        await at.queue("a", "b")
        await at.queue("c", model="large")
        at.is_up = False
        at.admission.wake("small")
        ends = await asyncio.gather(*at.tasks[:2], return_exceptions=True)
        assert [type(end) for end in ends] == [NoWorker, NoWorker]
        assert ends[0] is not ends[1]  # each is told to its own caller
        assert not at.tasks[2].done()
        assert at.waits == [(0, 0.0, "no_worker")] * 2


async def test_a_draining_queue_takes_nobody_and_serves_those_who_wait() -> None:
    async with house() as at:
        await at.queue("a")
        at.admission.drain()
        with pytest.raises(Draining) as caught:
            await at.keep(job())
        assert caught.value.retry_after_s == 1
        at.let_in(2)
        assert await at.outcomes() == ["a"]


async def test_a_draining_queue_gives_nobody_a_free_place() -> None:
    async with house({"small": 1}) as at:
        at.admission.drain()
        with pytest.raises(Draining):
            await at.keep(job())
        assert at.free["small"] == 1


async def test_a_caller_with_less_time_waits_less() -> None:
    async with house() as at:
        with pytest.raises(Overloaded, match=r"within 0\.01 s"):
            await at.keep(job(max_wait_s=0.01))


async def test_waits_need_not_be_watched() -> None:
    clock = Clock()
    admission: Admission[Place] = Admission(settings.Admission(), House({"small": 1}).place, clock)
    with await admission.enter(job(), Trip("r", job().endpoint, clock())) as turn:
        assert turn.place.holder == "req-1"

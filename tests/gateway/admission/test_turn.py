"""Is a place given back however its request ends?"""

import asyncio

import pytest

from gateway.errors import NoWorker
from gateway.model import Usage
from tests.gateway.admission.house import Place, house
from tests.gateway.test_model import job, trip


async def test_a_free_place_is_had_at_once_and_given_back_at_the_end() -> None:
    async with house({"small": 1}) as at:
        walked = trip()
        with await at.admission.enter(job(bucket=2), walked) as turn:
            assert turn.place.holder == "req-1"
            assert at.free["small"] == 0
        assert at.free["small"] == 1
        assert walked.queue_s == 0
        assert at.waits == [(2, 0.0, "served")]


async def test_a_place_is_given_back_also_after_an_error() -> None:
    async with house({"small": 1}) as at:
        with pytest.raises(ZeroDivisionError), await at.admission.enter(job(), trip()):
            raise ZeroDivisionError
        assert at.free["small"] == 1


async def test_a_turn_that_moves_gives_its_first_place_back_at_once_and_the_second_at_the_end() -> None:
    async with house({"small": 1}) as at:
        second = Place(at, "second")
        with await at.admission.enter(job(), trip()) as turn:
            first = turn.place
            turn.move(second)
            assert (first.closed, second.closed, turn.place) == (True, False, second)
        assert second.closed


async def test_where_no_worker_is_well_nobody_waits() -> None:
    async with house() as at:
        at.is_up = False
        with pytest.raises(NoWorker):
            await at.keep(job())
        assert at.waiting() == 0


async def test_what_one_who_waited_came_to_is_told() -> None:
    told: list[tuple[str, float]] = []
    async with house() as at:
        at.admission.on_settled = lambda job, work: told.append((job.id, work))
        await at.queue("waited")
        at.let_in(2)
        await asyncio.gather(*at.tasks)
        turn = at.kept.pop()
        turn._trip.charged = Usage(10, 3)
        turn.__exit__(None, None, None)
        await at.serve(1.0)
    assert told == [("waited", 10 + 2 * 3)], "the other one had no need to wait"


async def test_places_elsewhere_wake_whoever_waits_for_any_model() -> None:
    async with house() as at:
        await at.queue("a")
        await at.queue("b", model="large")
        at.free.update({"small": 1, "large": 1})
        at.admission.wake_all()
        assert at.given == ["a", "b"]

"""In which order are those served who wait?"""

from collections import Counter

import pytest

from gateway.errors import NoWorker
from gateway.model import Tenant
from tests.gateway.admission.house import CONTEXT, FLOODER, OTHER, house
from tests.gateway.test_model import job, trip


async def test_a_tenant_with_many_waiting_goes_in_turn_with_one_that_has_few() -> None:
    async with house() as at:
        for n in range(6):
            await at.queue(f"flood-{n}", tenant=FLOODER)
        await at.queue("other-0", "other-1", tenant=OTHER)
        at.let_in(4)
        assert sorted(at.given) == ["flood-0", "flood-1", "other-0", "other-1"]


async def test_a_tenant_of_twice_the_weight_gets_twice_as_much() -> None:
    async with house() as at:
        for n in range(8):
            await at.queue(f"one-{n}", tenant=Tenant("one"))
            await at.queue(f"two-{n}", tenant=Tenant("two", weight=2.0))
        at.let_in(6)
        assert Counter(name.partition("-")[0] for name in at.given) == {"two": 4, "one": 2}


async def test_of_one_tenant_the_shorter_goes_first_until_the_longer_has_waited_its_time() -> None:
    async with house() as at:
        await at.queue("long", prompt_tokens=20_000)
        at.clock.now += 0.5
        await at.queue("short", prompt_tokens=100)
        at.clock.now += 1
        await at.queue("late", prompt_tokens=100)
        at.let_in(3)
        assert at.given == ["short", "long", "late"]


async def test_a_place_that_fits_no_long_prompt_goes_to_the_next_short_one() -> None:
    async with house() as at:
        at.takes_long = False
        await at.queue("long", is_long=True)
        await at.queue("short")
        at.let_in(2)
        assert at.given == ["short"]
        at.takes_long = True
        at.admission.wake("small")
        assert at.given == ["short", "long"]


@pytest.mark.parametrize("is_long", [False, True])
async def test_one_that_waits_for_longer_workers_keeps_nobody_from_the_others(is_long: bool) -> None:
    async with house({"small": 0}) as at:
        at.takes_confined = False
        await at.queue("confined", is_long=is_long, context_tokens=CONTEXT + 1)
        await at.queue("other", is_long=is_long, context_tokens=CONTEXT)
        at.let_in()
        assert await at.tasks[1] == "other"
        assert at.admission.waiting() == {("small", is_long): 1}
        at.takes_confined = True
        at.let_in()
        assert at.given == ["other", "confined"]


async def test_a_short_prompt_finds_a_free_place_past_a_long_one_that_waits() -> None:
    async with house({"small": 1}) as at:
        at.takes_long = False
        await at.queue("long", is_long=True)
        with await at.admission.enter(job(id="short"), trip()) as turn:
            assert turn.place.holder == "short"
            assert at.waits == [(0, 0.0, "served")]


async def test_bands_go_one_before_the_other_whoever_came_first() -> None:
    async with house() as at:
        await at.queue("batch", tenant=Tenant("b", priority="batch"))
        await at.queue("default", tenant=Tenant("d"))
        await at.queue("interactive", tenant=Tenant("i", priority="interactive"))
        at.let_in(3)
        assert at.given == ["interactive", "default", "batch"]


async def test_while_others_wait_a_tenant_holds_no_more_than_its_share_of_the_workers() -> None:
    async with house({"small": 4}, tenant_flight_share=0.5) as at:
        at.capacity = 8
        await at.queue("f1", "f2", "f3", "f4", tenant=FLOODER)  # nobody else is there
        assert at.given == ["f1", "f2", "f3", "f4"]
        await at.queue("f5", "f6", tenant=FLOODER)
        at.let_in(1)
        assert at.given[4:] == ["f5"]
        await at.queue("o1", tenant=OTHER)
        await at.queue("f7", tenant=FLOODER)
        at.let_in(1)
        assert at.given[5:] == ["o1"]
        at.let_in(1)
        assert at.given[6:] == ["f6"], "nobody else waits"


async def test_the_last_places_are_left_to_others_by_a_tenant_beyond_its_share() -> None:
    async with house({"small": 8}, tenant_flight_share=0.5) as at:
        at.capacity = 8
        await at.queue("o1", tenant=OTHER)
        await at.queue(*(f"f{n}" for n in range(9)), tenant=FLOODER)
        assert len(at.given) == 8, "of eight places a sixteenth is not one yet"
        at.let_in(1)
        assert len(at.given) == 8
        await at.queue("o2", tenant=OTHER)
        assert at.given[8:] == ["o2"], "who comes beside it finds a place at once"
        at.let_in(1)
        others = [turn for turn in at.kept if turn.place.holder in ("o1", "o2")]
        at.kept = [turn for turn in at.kept if turn not in others]
        for turn in others:
            turn.__exit__(None, None, None)
        at.admission.wake("small")
        assert at.given[9:] == ["f7", "f8"], "alone it may have them all"


@pytest.mark.parametrize(("places", "left"), [(15, 0), (16, 1), (32, 2)])
async def test_one_place_in_sixteen_is_left(places: int, left: int) -> None:
    async with house({"small": places}, tenant_flight_share=0.5) as at:
        at.capacity = places
        await at.queue("o1", tenant=OTHER)
        await at.queue(*(f"f{n}" for n in range(places)), tenant=FLOODER)
        assert at.free["small"] == left


async def test_places_that_come_free_together_are_shared_like_those_that_come_one_by_one() -> None:
    heavy = Tenant("flooder", weight=100.0)  # whose turn it would be each time
    async with house(tenant_flight_share=0.5) as at:
        at.capacity = 4
        await at.queue("f1", "f2", "f3", "f4", tenant=heavy)
        await at.queue("o1", "o2", "o3", tenant=OTHER)
        at.let_in(4)
        assert Counter(name[0] for name in at.given) == {"f": 2, "o": 2}


async def test_who_waits_for_another_model_keeps_no_tenant_from_free_workers() -> None:
    async with house({"small": 2}, tenant_flight_share=0.5) as at:
        at.capacity = 2
        await at.queue("f1", "f2", tenant=FLOODER)
        await at.queue("o1", tenant=OTHER, model="large")
        await at.queue("f3", tenant=FLOODER)
        at.let_in(1)
        assert at.given == ["f1", "f2", "f3"]


async def test_a_place_that_nobody_else_can_use_goes_to_a_tenant_beyond_its_share() -> None:
    async with house({"small": 2}, tenant_flight_share=0.5) as at:
        at.capacity = 2
        at.takes_long = False
        await at.queue("f1", "f2", tenant=FLOODER)
        await at.queue("long", tenant=OTHER, is_long=True)
        await at.queue("f3", tenant=FLOODER)
        at.let_in(1)
        assert at.given == ["f1", "f2", "f3"]


async def test_with_no_worker_left_who_has_its_share_hears_of_it_like_anybody() -> None:
    async with house({"small": 3}, tenant_flight_share=0.5) as at:
        at.capacity = 3
        await at.queue("o1", tenant=OTHER)
        await at.queue("f1", "f2", tenant=FLOODER)
        at.capacity, at.is_up = 0, False
        with pytest.raises(NoWorker):
            await at.keep(job(tenant=FLOODER, max_wait_s=0.05))

"""Does everybody who cannot wait hear at once, and when to come back?"""

import asyncio
import math

import pytest

from gateway.errors import Overloaded, RateLimited
from gateway.model import Tenant, Usage
from tests.gateway.admission.house import OTHER, House, house
from tests.gateway.test_model import job


async def test_a_full_queue_refuses_at_once() -> None:
    async with house(max_queued=2, tenant_queue_share=1) as at:
        await at.queue("a", "b")
        with pytest.raises(Overloaded, match="Too many requests are waiting"):
            await at.keep(job())
        assert at.waiting() == 2
        assert at.waits == [(0, 0.0, "server_is_overloaded")]


async def test_a_full_queue_for_one_model_is_full_for_all_but_no_bar_to_a_free_place() -> None:
    async with house({"large": 1}, max_queued=1) as at:
        await at.queue("a")
        assert await at.keep(job(id="b", model="large")) == "b"
        with pytest.raises(Overloaded):
            await at.keep(job(model="large"))


async def test_without_a_queue_there_are_only_free_places() -> None:
    async with house({"small": 1}, max_queued=0) as at:
        assert await at.keep(job(id="a")) == "a"
        with pytest.raises(Overloaded):
            await at.keep(job())


async def test_a_tenant_may_fill_the_queue_while_less_than_half_of_it_is_full() -> None:
    async with house(max_queued=8, tenant_queue_share=0.25) as at:
        await at.queue("a", "b", "c", "d")
        assert at.waiting() == 4


async def test_from_half_on_a_tenant_has_no_more_than_its_share() -> None:
    acme, globex = Tenant("acme"), Tenant("globex")
    async with house(max_queued=8, tenant_queue_share=0.25) as at:
        await at.queue("a", "b", "c", "d", tenant=acme)
        with pytest.raises(RateLimited, match="its whole share of the queue") as caught:
            await at.keep(job(acme))
        assert (caught.value.kind, caught.value.retry_after_s) == ("queue_share", 1)
        await at.queue("e", "f", tenant=globex)
        with pytest.raises(RateLimited):
            await at.keep(job(globex))
        assert at.waiting() == 6
        assert at.waits == [(0, 0.0, "rate_limit_exceeded")] * 2


async def test_what_was_served_counts_in_no_share() -> None:
    async with house(max_queued=4, tenant_queue_share=0.5) as at:
        await at.queue("a", "b")
        at.let_in(2)
        await at.outcomes()
        await at.queue("c", "d")
        assert at.waiting() == 2


async def wait_told(at: House) -> float:
    with pytest.raises(Overloaded) as caught:
        await at.keep(job())
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


async def test_the_wait_that_is_told_is_how_long_the_queue_takes_to_drain() -> None:
    async with house({"small": 1}, max_queued=5, tenant_queue_share=1) as at:
        await at.serve(4.0)
        await at.queue("holds", "a", "b", "c", "d", "e")
        assert await wait_told(at) == pytest.approx(5 * 4)


async def test_before_anything_has_ended_a_second_is_told() -> None:
    async with house(max_queued=1) as at:
        await at.queue("a")
        assert await wait_told(at) == 1


async def test_with_twice_the_places_the_wait_is_half() -> None:
    async with house({"small": 2}, max_queued=5, tenant_queue_share=1) as at:
        await at.serve(4.0)
        await at.queue("holds", "holds too", "a", "b", "c", "d", "e")
        assert await wait_told(at) == pytest.approx(5 * 2)


async def test_of_a_burst_that_comes_to_idle_workers_nobody_is_refused() -> None:
    """However long this process was busy with taking it in: that says nothing of the workers."""
    async with house({"small": 2}, max_queued=2000, tenant_queue_share=1, max_wait_s=60) as at:
        await at.serve(0.1)
        await at.queue("first", "second")
        for n in range(200):
            at.clock.now += 1.0
            await at.queue(f"r{n}")
        assert at.waiting() == 200


async def test_while_places_fill_it_is_by_all_there_are_that_a_wait_is_judged() -> None:
    async with house({"small": 1}, max_queued=100, tenant_queue_share=1, max_wait_s=60) as at:
        await at.serve(4.0)
        at.capacity = 128  # of which few can be taken at once
        await at.queue("holds", *(f"r{n}" for n in range(99)))
        assert at.waiting() == 99


async def test_each_model_has_its_own_pace() -> None:
    async with house({"small": 1, "large": 1}, max_queued=1) as at:
        await at.serve(4.0)
        at.served_at = "large"
        await at.serve(50.0, model="large")
        await at.queue("holds", "waits")
        assert await wait_told(at) == pytest.approx(4)


async def test_a_place_that_was_held_for_nothing_says_nothing() -> None:
    async with house({"small": 1}, max_queued=1) as at:
        await at.serve(4.0)
        await at.serve(0.0, used=Usage(0, 0))
        await at.queue("holds", "waits")
        assert await wait_told(at) == pytest.approx(4)


async def test_no_wait_is_told_longer_than_a_minute() -> None:
    async with house({"small": 1}, max_queued=1) as at:
        await at.serve(500.0)
        await at.queue("holds", "waits", max_wait_s=math.inf)
        assert await wait_told(at) == 60


async def test_the_share_of_a_tenant_is_waited_for_as_long_as_it_takes_to_drain() -> None:
    async with house({"small": 1}, max_queued=8, tenant_queue_share=0.5) as at:
        await at.serve(5.0)
        await at.queue("holds", "b", "c", "d", "e")
        with pytest.raises(RateLimited) as caught:
            await at.keep(job())
        assert caught.value.retry_after_s == pytest.approx(4 * 5)


async def test_who_would_be_served_too_late_is_refused_at_once() -> None:
    async with house({"small": 1}, max_wait_s=5) as at:
        await at.serve(2.0, used=Usage(10, 20))  # as much as is expected of the others
        await at.queue("holds", "a", "b", "c")
        with pytest.raises(Overloaded, match="A model server would be free in"):
            await at.keep(job(id="d"))
        assert at.waiting() == 3
        await at.queue("short", prompt_tokens=1, max_output_tokens=1)  # goes before them
        assert at.waiting() == 4


async def test_in_a_full_queue_one_of_a_lower_band_makes_room() -> None:
    async with house(max_queued=2, tenant_queue_share=1) as at:
        await at.queue("b1", "b2", tenant=Tenant("b", priority="batch"))
        await at.queue("i1", tenant=Tenant("i", priority="interactive"))
        assert at.waiting() == 2
        with pytest.raises(Overloaded, match="Too many requests are waiting"):
            await at.keep(job(tenant=Tenant("b", priority="batch")))
        at.let_in(2)
        assert at.given == ["i1", "b1"]
        assert await at.outcomes() == ["b1", Overloaded, "i1"]


async def test_nobody_makes_room_for_one_who_is_not_let_in() -> None:
    async with house(max_queued=4, tenant_queue_share=0.25) as at:
        await at.queue("i1", tenant=Tenant("i", priority="interactive"))
        for n in range(3):
            await at.queue(f"b{n}", tenant=Tenant(f"b{n}", priority="batch"))
        with pytest.raises(RateLimited):
            await at.keep(job(tenant=Tenant("i", priority="interactive")))
        assert at.waiting() == 4


async def test_one_who_has_just_left_makes_room_like_any_other() -> None:
    async with house() as at:
        await at.queue("b")
        at.tasks[0].cancel()  # and has not run since
        at.admission._entry._shed_one()
        assert at.waiting() == 0
        assert await at.outcomes() == [asyncio.CancelledError]


async def test_what_was_really_used_is_what_a_tenant_is_charged_in_the_queue() -> None:
    """One that asks for much and takes little is not put behind for long."""
    async with house() as at:
        asking = Tenant("asking")
        await at.queue("a1", tenant=asking, max_output_tokens=10_000)
        await at.queue("o1", "o2", "o3", tenant=OTHER, max_output_tokens=10)
        at.let_in()
        turn = at.kept.pop() if at.kept else None
        while turn is None:
            await asyncio.sleep(0)
            turn = at.kept.pop() if at.kept else None
        turn._trip.charged = Usage(10, 1)
        turn.__exit__(None, None, None)  # it is over, and its place is free
        await at.queue("a2", tenant=asking, max_output_tokens=10)
        at.admission.wake("small")
        at.let_in(1)
        assert "a2" in at.given


async def test_what_is_expected_of_an_answer_counts_for_its_size_not_what_it_may_be() -> None:
    async with house() as at:
        await at.queue("next", max_output_tokens=500, expected_output_tokens=40)
        assert [ticket.total_work for ticket in at.admission._queue] == [10 + 2 * 40]

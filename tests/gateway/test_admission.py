"""Does everybody get a place in order, or hear why not, and does no place get lost?"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import settings
from gateway.admission import Admission, Turn
from gateway.errors import Draining, NoWorker, Overloaded, RateLimited
from gateway.model import Job, Tenant, Trip
from tests.gateway.test_model import Clock, job, trip

FOREVER = 1000  # seconds that no test waits


class Place:
    """A place at a worker, given back at most once."""

    def __init__(self, house: "House", holder: str) -> None:
        self.house = house
        self.holder = holder
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.house.free[self.house.served_at] += 1


class House:
    """Workers with so many places for each model, and a queue before them."""

    served_at = "small"

    def __init__(self, free: dict[str, int] | None = None, **rules: Any) -> None:
        self.clock = Clock()
        self.free = Counter(free or {})
        self.is_up = True
        self.given: list[str] = []
        self.waits: list[tuple[int, float, str]] = []
        self.admission: Admission[Place] = Admission(
            settings.Admission(**({"max_wait_s": FOREVER} | rules)),
            self.place,
            self.clock,
            lambda *wait: self.waits.append(wait),
        )
        self.tasks: list[asyncio.Task[str]] = []

    def place(self, job: Job) -> Place | None:
        if not self.is_up:
            raise NoWorker("None is up.", retry_after_s=2)
        if not self.free[job.model]:
            return None
        self.free[job.model] -= 1
        self.given.append(job.id)
        return Place(self, job.id)

    def let_in(self, count: int = 1, model: str = "small") -> None:
        self.free[model] += count
        self.admission.wake(model)

    async def queue(self, *ids: str, **fields: Any) -> None:
        """Requests that come one after the other; each keeps the place that it gets."""
        for id in ids:
            self.tasks.append(asyncio.create_task(self.keep(job(**({"id": id} | fields)))))
            await asyncio.sleep(0)

    async def keep(self, job: Job) -> str:
        await self.admission.enter(job, trip()).__aenter__()
        return job.id

    async def outcomes(self) -> list[object]:
        """How each that queued came out: its id, or the kind of its error."""
        ends = await asyncio.gather(*self.tasks, return_exceptions=True)
        return [end if isinstance(end, str) else type(end) for end in ends]

    def waiting(self) -> int:
        return sum(self.admission.depth().values())


@asynccontextmanager
async def house(free: dict[str, int] | None = None, **rules: Any) -> AsyncIterator[House]:
    """At the end, nobody may be waiting and nobody be counted."""
    made = House(free, **rules)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    assert made.waiting() == 0
    assert not made.admission._by_tenant
    assert made.admission._waiting == 0
    assert not any(made.admission._queues.values())


# Without waiting


async def test_a_free_place_is_had_at_once_and_given_back_at_the_end() -> None:
    async with house({"small": 1}) as at:
        walked = trip()
        async with at.admission.enter(job(bucket=2), walked) as turn:
            assert turn.place.holder == "req-1"
            assert at.free["small"] == 0
        assert at.free["small"] == 1
        assert walked.queue_s == 0
        assert at.waits == [(2, 0.0, "served")]


async def test_a_place_is_given_back_also_after_an_error() -> None:
    async with house({"small": 1}) as at:
        with pytest.raises(ZeroDivisionError):
            async with at.admission.enter(job(), trip()):
                raise ZeroDivisionError
        assert at.free["small"] == 1


async def test_a_turn_that_moves_gives_its_first_place_back_at_once_and_the_second_at_the_end() -> None:
    async with house({"small": 1}) as at:
        second = Place(at, "second")
        async with at.admission.enter(job(), trip()) as turn:
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


# Waiting


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
        assert at.given == []
        at.admission.wake("small")
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
        entering = asyncio.create_task(at.admission.enter(job(bucket=1), walked).__aenter__())
        await asyncio.sleep(0)
        at.clock.now += 2.5
        at.let_in()
        await entering
        assert walked.queue_s == 2.5
        assert at.waits == [(1, 2.5, "served")]


async def test_a_place_that_comes_free_goes_to_the_next() -> None:
    async with house({"small": 1}) as at:
        async with at.admission.enter(job(id="first"), trip()):
            await at.queue("second")
        at.admission.wake("small")
        assert at.given == ["first", "second"]


# Leaving


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


# Not being served


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


# Draining


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


# Estimates


async def wait_told(at: House) -> float:
    with pytest.raises(Overloaded) as caught:
        await at.keep(job())
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


async def test_the_wait_that_is_told_follows_how_fast_the_queue_drains() -> None:
    async with house(max_queued=5, tenant_queue_share=1) as at:
        await at.queue("a", "b", "c", "d", "e")
        assert await wait_told(at) == 1  # nothing is known yet
        for newcomer in ("f", "g"):
            at.clock.now += 4
            at.let_in()
            await asyncio.sleep(0)
            await at.queue(newcomer)
        assert await wait_told(at) == pytest.approx(5 * 4)


async def test_a_change_of_pace_is_learned_little_by_little() -> None:
    async with house(max_queued=5, tenant_queue_share=1) as at:
        await at.queue("a", "b", "c", "d", "e")
        for newcomer, pause_s in (("f", 4), ("g", 2)):
            at.clock.now += pause_s
            at.let_in()
            await asyncio.sleep(0)
            await at.queue(newcomer)
        assert await wait_told(at) == pytest.approx(5 * (4 + 0.1 * (2 - 4)))


async def test_the_time_without_a_queue_says_nothing_of_how_fast_it_drains() -> None:
    async with house(max_queued=1) as at:
        at.clock.now += 1000
        await at.queue("a")
        at.clock.now += 3
        at.let_in()
        await asyncio.sleep(0)
        await at.queue("b")
        assert await wait_told(at) == pytest.approx(3)


async def test_no_wait_is_told_longer_than_a_minute() -> None:
    async with house(max_queued=1) as at:
        await at.queue("a")
        at.clock.now += 500
        at.let_in()
        await asyncio.sleep(0)
        await at.queue("b")
        assert await wait_told(at) == 60


async def test_the_share_of_a_tenant_is_waited_for_as_long_as_it_takes_to_drain() -> None:
    async with house(max_queued=8, tenant_queue_share=0.5) as at:
        await at.queue("a")
        at.clock.now += 5
        at.let_in()
        await asyncio.sleep(0)
        await at.queue("b", "c", "d", "e")
        with pytest.raises(RateLimited) as caught:
            await at.keep(job())
        assert caught.value.retry_after_s == pytest.approx(4 * 5)


async def test_waits_need_not_be_watched() -> None:
    clock = Clock()
    admission: Admission[Place] = Admission(settings.Admission(), House({"small": 1}).place, clock)
    turn: Turn[Place] = admission.enter(job(), Trip("r", job().endpoint, clock()))
    async with turn:
        assert turn.place.holder == "req-1"

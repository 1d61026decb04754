"""Do those who want to know the same share one look, which none of them can end for the others?"""

import asyncio
import contextlib
import gc

import pytest

from gateway.auth.flights import Flights
from gateway.errors import StoreUnavailable

A, B = b"a", b"b"


class Look:
    """Counts how often it was asked, and answers each with that count, once all or that one is let."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.was_current: list[bool] = []
        self.error: Exception | None = None
        self.let = [asyncio.Event() for _ in range(3)]
        self.flights = Flights(self)

    def let_all(self) -> None:
        for event in self.let:
            event.set()

    async def __call__(self, digest: bytes) -> int:
        self.asked.append(digest)
        count = len(self.asked)
        await self.let[count - 1].wait()
        self.was_current.append(self.flights.is_current(digest))
        if self.error:
            raise self.error
        return count

    async def shared(self, digest: bytes, by: int = 1, looks: int = 1) -> "list[asyncio.Task[int]]":
        """So many who share a look and wait for it. looks: how many have been begun then."""
        tasks = [asyncio.create_task(self.flights.share(digest)) for _ in range(by)]
        while len(self.asked) < looks:  # noqa: ASYNC110 - tasks begin in the next turns of the loop
            await asyncio.sleep(0)
        return tasks


async def test_all_who_ask_for_the_same_share_one_look() -> None:
    look = Look()
    tasks = await look.shared(A, by=5)
    look.flights.begin(A)
    look.let_all()

    assert await asyncio.gather(*tasks) == [1] * 5
    assert (look.asked, look.was_current) == ([A], [True])


async def test_each_hash_has_a_look_of_its_own() -> None:
    look = Look()
    look.let_all()
    assert await asyncio.gather(*(look.flights.share(digest) for digest in (A, B))) == [1, 2]


async def test_once_it_has_ended_the_next_begins() -> None:
    look = Look()
    look.let_all()
    assert [await look.flights.share(A), await look.flights.share(A)] == [1, 2]


async def test_what_has_ended_is_not_kept() -> None:
    look = Look()
    look.let_all()
    await look.flights.share(A)
    await asyncio.sleep(0)  # in which the loop lets go of the task

    gc.collect()
    tasks = [held for held in gc.get_objects() if isinstance(held, asyncio.Task)]
    assert [task.get_name() for task in tasks if task.get_name() == "look for a key"] == []


async def test_one_who_leaves_ends_it_for_nobody() -> None:
    look = Look()
    first, second = await look.shared(A, by=2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    look.let_all()

    assert await second == 1


async def test_it_goes_on_when_all_have_left() -> None:
    look = Look()
    (only,) = await look.shared(A)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    look.let_all()

    assert await look.flights.share(A) == 1


async def test_what_it_raises_reaches_all(caplog: pytest.LogCaptureFixture) -> None:
    look = Look()
    look.error = StoreUnavailable("away")
    tasks = await look.shared(A, by=2)
    look.let_all()

    assert await asyncio.gather(*tasks, return_exceptions=True) == [look.error] * 2
    assert not caplog.records


async def test_a_bug_in_a_look_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    look = Look()
    look.error = RuntimeError("a bug")
    look.let_all()
    look.flights.begin(A)
    await look.flights.aclose()
    assert not caplog.records  # it was ended before it began

    look.flights.begin(A)
    with pytest.raises(RuntimeError):
        await look.flights.share(A)
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [look.error]


async def test_who_comes_after_a_change_is_not_answered_from_before_it() -> None:
    look = Look()
    (before,) = await look.shared(A)
    look.flights.outdate()
    (after,) = await look.shared(A, looks=2)
    look.let_all()

    assert (await before, await after) == (1, 2)
    assert look.was_current == [False, True]


async def test_an_outdated_look_that_ends_leaves_the_later_one_in_its_place() -> None:
    look = Look()
    (before,) = await look.shared(A)
    look.flights.outdate()
    (later,) = await look.shared(A, looks=2)
    look.let[0].set()
    assert await before == 1
    (joined,) = await look.shared(A, looks=2)
    look.let_all()

    assert (await later, await joined) == (2, 2)


async def test_closing_ends_even_a_look_that_loses_a_cancellation() -> None:
    begun = asyncio.Event()

    async def look(digest: bytes) -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    flights = Flights(look)
    flights.begin(A)
    await begun.wait()
    async with asyncio.timeout(10):
        await flights.aclose()

    assert len(asyncio.all_tasks()) == 1  # the test


async def test_closing_ends_all() -> None:
    look = Look()
    (waiting,) = await look.shared(A)
    look.flights.outdate()
    look.flights.begin(B)

    await look.flights.aclose()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "look for a key"]

"""Is every request counted once, whatever the store does, and does none wait for it?

That sums are right over any course of failures is tested in test_stores, with all stores.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

import pytest

from gateway.errors import StoreUnavailable
from gateway.usage import Meter, UsageRow, meter
from gateway.usage.rows import Labels, Sums
from tests.gateway.usage.samples import DAY, NOON, Shelf, ended, labels

TODAY = date(2026, 11, 30)
GUARD_S = 10


async def kept(store: Shelf) -> Mapping[Labels, Sequence[int]]:
    return await store.sums(date.min, date.max)


# What is counted


async def test_requests_and_tokens_are_summed_by_their_labels() -> None:
    metering = Meter(Shelf())
    for trip in (
        ended(),
        ended(),
        ended("globex", "g-1"),
        ended(model="large"),
        ended(outcome="client_gone"),
    ):
        metering.record(trip)

    assert await metering.report(TODAY, TODAY) == [
        UsageRow(DAY, "acme", "acme-1", "large", "ok", 1, 100, 64, 20),
        UsageRow(DAY, "acme", "acme-1", "small", "client_gone", 1, 100, 64, 20),
        UsageRow(DAY, "acme", "acme-1", "small", "ok", 2, 200, 128, 40),
        UsageRow(DAY, "globex", "g-1", "small", "ok", 1, 100, 64, 20),
    ]


async def test_a_request_that_is_not_charged_is_counted_without_tokens() -> None:
    metering = Meter(Shelf())
    metering.record(ended(charged=None, model=None, outcome="rate_limit_exceeded"))

    [row] = await metering.report(TODAY, TODAY)

    assert row == UsageRow(DAY, "acme", "acme-1", "none", "rate_limit_exceeded", 1, 0, 0, 0)


async def test_a_request_belongs_to_the_utc_day_in_which_it_ended() -> None:
    metering = Meter(Shelf())
    midnight = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    metering.record(ended(ended_at=midnight - 0.001))
    metering.record(ended(ended_at=midnight))

    rows = await metering.report(date(2026, 11, 1), date(2026, 12, 31))

    assert [(row.day, row.requests) for row in rows] == [("2026-11-30", 1), ("2026-12-01", 1)]


async def test_a_report_is_of_the_days_and_the_tenant_asked_for() -> None:
    metering = Meter(Shelf())
    for trip in (ended(), ended("globex"), ended("globex", ended_at=NOON - 86_400)):
        metering.record(trip)

    rows = await metering.report(TODAY, TODAY, "globex")

    assert [(row.day, row.tenant) for row in rows] == [(DAY, "globex")]


# The store is away


async def test_a_batch_whose_answer_was_lost_goes_again_under_its_number_and_new_sums_under_the_next() -> (
    None
):
    store = Shelf(["lost", "away"])
    metering = Meter(store)
    metering.record(ended())
    assert not await metering.flush()
    metering.record(ended())
    assert not await metering.flush()
    metering.record(ended())

    assert await metering.flush()

    assert store.numbers == [1, 1, 1, 2]
    assert [[*sums.values()] for _, _, sums in store.calls] == [[[1, 100, 64, 20]]] * 3 + [
        [[2, 200, 128, 40]]
    ]
    assert await kept(store) == {labels(): (3, 300, 192, 60)}


async def test_nothing_new_is_nothing_to_send() -> None:
    store = Shelf()
    metering = Meter(store)
    metering.record(ended())

    assert await metering.flush()
    assert await metering.flush()

    assert store.numbers == [1]


async def test_batches_are_small_and_numbered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_SETS_A_BATCH", 2)
    store = Shelf(["ok", "lost"])
    metering = Meter(store)
    for tenant in "abcde":
        metering.record(ended(tenant))

    assert not await metering.flush()
    assert await metering.flush()

    assert [(number, len(sums)) for _, number, sums in store.calls] == [(1, 2), (2, 2), (2, 2), (3, 1)]
    assert len(await kept(store)) == 5


async def test_two_meters_are_two_processes_to_the_store() -> None:
    store = Shelf()
    for _ in range(2):
        metering = Meter(store)
        metering.record(ended())
        await metering.flush()

    assert await kept(store) == {labels(): (2, 200, 128, 40)}


async def test_two_flushes_at_once_do_not_take_each_others_batches() -> None:
    answer = asyncio.Event()

    class Slow(Shelf):
        async def apply(self, process: str, sequence: int, sums: Sums) -> None:
            await answer.wait()
            await super().apply(process, sequence, sums)

    store = Slow()
    metering = Meter(store)
    metering.record(ended("a"))
    first = asyncio.create_task(metering.flush())
    await asyncio.sleep(0)
    metering.record(ended("b"))
    second = asyncio.create_task(metering.flush())
    await asyncio.sleep(0)
    answer.set()

    assert [await first, await second] == [True, True]
    assert store.numbers == [1, 2]
    assert sorted(tenant for _, tenant, *_ in await kept(store)) == ["a", "b"]


async def test_a_full_memory_counts_on_where_it_has_begun_and_says_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meter, "MOST_SETS", 3)
    store = Shelf(["away"])
    metering = Meter(store)
    for tenant in "ab":
        metering.record(ended(tenant))
    await metering.flush()  # two sets wait in a batch
    for tenant in "aacdc":  # one more set fits, others do not
        metering.record(ended(tenant))
    assert metering.dropped == 3
    await metering.flush()
    for tenant in "defgh":  # there is room again, for three
        metering.record(ended(tenant))
    await metering.flush()

    assert metering.dropped == 5
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "3 sums of usage wait for the store, no more are begun: some requests go uncounted"
    ] * 2
    counts = {tenant: count for (_, tenant, *_), (count, *_) in (await kept(store)).items()}
    assert counts == {"a": 3, "b": 1, "d": 1, "e": 1, "f": 1}


async def test_the_log_tells_once_that_the_store_is_away_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    metering = Meter(Shelf(["ok", "away", "lost", "away"]))
    for _ in range(6):
        metering.record(ended())
        await metering.flush()

    assert [record.message for record in caplog.records] == [
        "usage cannot be added to the store, and is kept in memory: it is not there",
        "usage is added to the store again",
    ]


async def test_a_report_of_a_store_that_is_away_fails() -> None:
    class Away(Shelf):
        async def sums(self, first: date, last: date, tenant: str | None = None) -> Sums:
            raise StoreUnavailable("Try again.", retry_after_s=1)

    with pytest.raises(StoreUnavailable):
        await Meter(Away()).report(TODAY, TODAY)


# By itself


class Telling(Shelf):
    """Tells when a call is done, however it went."""

    def __init__(self, course: Sequence[str] = ()) -> None:
        super().__init__(course)
        self.done = asyncio.Event()

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        try:
            await super().apply(process, sequence, sums)
        finally:
            self.done.set()

    async def next(self) -> None:
        self.done.clear()
        async with asyncio.timeout(GUARD_S):
            await self.done.wait()


async def test_sums_are_added_after_a_while_and_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter, "FLUSH_EVERY_S", 0.001)
    store = Telling(["ok", "away", "ok"])
    async with Meter(store) as metering:
        metering.record(ended())
        await store.next()
        metering.record(ended())
        await store.next()
        await store.next()

        assert store.numbers == [1, 2, 2]
        assert await kept(store) == {labels(): (2, 200, 128, 40)}


async def test_a_bug_does_not_end_metering(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meter, "FLUSH_EVERY_S", 0.001)

    class Buggy(Telling):
        async def apply(self, process: str, sequence: int, sums: Sums) -> None:
            await super().apply(process, sequence, sums)
            if len(self.calls) == 1:
                raise ZeroDivisionError

    store = Buggy()
    async with Meter(store) as metering:
        metering.record(ended())
        await store.next()
        await store.next()

    assert store.numbers == [1, 1]
    assert await kept(store) == {labels(): (1, 100, 64, 20)}
    [record] = caplog.records
    assert record.message == "adding usage to the store failed; it begins anew"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_the_last_sums_are_added_at_the_end_even_if_the_store_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter, "RETRY_S", 0.001)
    store = Shelf(["away", "lost", "ok"])
    async with Meter(store) as metering:
        metering.record(ended())

    assert store.numbers == [1, 1, 1]
    assert await kept(store) == {labels(): (1, 100, 64, 20)}


async def test_a_batch_on_its_way_at_the_end_is_sent_again_under_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter, "FLUSH_EVERY_S", 0.001)
    arrived = asyncio.Event()

    class SlowToAnswer(Shelf):
        async def apply(self, process: str, sequence: int, sums: Sums) -> None:
            await super().apply(process, sequence, sums)
            if len(self.calls) == 1:
                arrived.set()
                await asyncio.Event().wait()

    store = SlowToAnswer()
    async with Meter(store) as metering:
        metering.record(ended())
        await arrived.wait()

    assert store.numbers == [1, 1]
    assert await kept(store) == {labels(): (1, 100, 64, 20)}


async def test_a_store_that_never_answers_holds_up_the_end_only_so_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meter, "LAST_FLUSH_S", 0.01)

    class Frozen(Shelf):
        async def apply(self, process: str, sequence: int, sums: Sums) -> None:
            self.calls.append((process, sequence, sums))
            await asyncio.Event().wait()

    async with asyncio.timeout(GUARD_S):
        async with Meter(Frozen()) as metering:
            for tenant in ("acme", "acme", "globex"):
                metering.record(ended(tenant))

    assert [record.message for record in caplog.records] == [
        "the usage of 3 requests may be lost: the store was away at shutdown"
    ]
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "usage"] == []


async def test_all_that_a_store_did_not_take_is_told_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meter, "LAST_FLUSH_S", 0.01)
    async with Meter(Shelf(itertools.repeat("away"))) as metering:
        metering.record(ended())
        await metering.flush()
        for tenant in ("acme", "globex"):
            metering.record(ended(tenant))

    assert caplog.records[-1].message == (
        "the usage of 3 requests may be lost: the store was away at shutdown"
    )


async def test_an_end_without_usage_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    store = Shelf()
    async with Meter(store):
        pass

    assert (store.calls, caplog.records) == ([], [])


class Deaf(Shelf):
    """Loses the first cancellation, as redis-py can where a connection breaks at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        if not self.asked.is_set():
            self.asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await super().apply(process, sequence, sums)


async def test_a_cancellation_that_is_lost_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "FLUSH_EVERY_S", 0.001)
    store = Deaf()
    async with asyncio.timeout(GUARD_S), Meter(store) as metering:
        metering.record(ended())
        await store.asked.wait()

    assert await kept(store) == {labels(): (1, 100, 64, 20)}

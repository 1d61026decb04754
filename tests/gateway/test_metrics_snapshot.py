"""Is a snapshot all that a ledger holds, can a ledger go on from it, and do several add up as they should?"""

from typing import Any

import msgspec

from gateway.accounting import Ledger
from gateway.metrics.kept import Packer, unpack
from gateway.metrics.snapshot import Snapshot, Source, total
from gateway.model import Usage, Worker
from tests.gateway.test_model import Clock, caller, job, trip, worker


def ledger_of(*seconds: float) -> Ledger:
    """With one request of each duration, and one of everything else."""
    clock = Clock()
    ledger = Ledger(clock, lambda line: None)
    gaps = ledger.gaps()
    gaps.add(0.125)
    for duration in seconds:
        clock.now = 1000.0 + duration
        ledger.close(
            trip(
                caller=caller(),
                job=job(),
                sent_at=1000.25,
                first_token_at=1000.5,
                gaps=gaps,
                usage=Usage(5, 2),
                outcome="ok",
            )
        )
    ledger.queued(1, 0.25, "served")
    ledger.limited["requests",] += 1
    ledger.worker_failures["w0", "broke"] += 1
    ledger.retries += 1
    ledger.store_seconds[()].add(0.001)
    return ledger


def source(
    ledger: Ledger | None = None,
    workers: tuple[tuple[Worker, bool], ...] = (),
    depth: dict[int, int] | None = None,
    degraded: bool = False,
) -> Source:
    return Source(
        ledger or Ledger(Clock(), lambda line: None),
        2,
        lambda: depth or {},
        lambda: workers,
        lambda: degraded,
    )


def sent(snapshot: Snapshot) -> Snapshot:
    """As it comes out of a file."""
    return unpack(Packer().pack(snapshot)).snapshot()


def plain(snapshot: Snapshot) -> Any:
    """To be compared."""
    return msgspec.to_builtins(msgspec.structs.asdict(snapshot) | {"pid": 0}, str_keys=False)


def test_a_snapshot_holds_what_was_counted() -> None:
    snapshot = source(ledger_of(1.0, 2.0)).take()
    assert snapshot.counters == {
        "requests": {("chat", "small", "acme", "ok"): 2},
        "tokens": {("acme", "small", "prompt"): 10, ("acme", "small", "completion"): 4},
        "limited": {("requests",): 1},
        "worker_failures": {("w0", "broke"): 1},
        "retries": {(): 1},
    }
    sums = {
        name: {labels: (sum(tally.counts), tally.total) for labels, tally in tallies.items()}
        for name, tallies in snapshot.histograms.items()
    }
    assert sums == {
        "request_seconds": {("chat", "small"): (2, 3.0)},
        "ttft_seconds": {("small", "0"): (2, 1.0)},
        "inter_token_seconds": {("small",): (2, 0.25)},
        "overhead_seconds": {(): (2, 0.5)},
        "queue_wait_seconds": {("1", "served"): (1, 0.25)},
        "store_seconds": {(): (1, 0.001)},
        "estimate_error_ratio": {(): (2, 4.0)},
    }


def test_what_was_put_off_is_counted_first() -> None:
    ledger = Ledger(Clock(), lambda line: None, put_off=lambda call: None)
    ledger.close(trip(outcome="ok"))
    assert sum(source(ledger).take().counters["requests"].values()) == 1


def test_gauges_are_of_this_moment() -> None:
    workers = ((worker("w0", 3, limit=16), True), (worker("w1"), False))
    assert source(workers=workers, depth={1: 2}, degraded=True).take().gauges == {
        "queue_depth": {("0",): 0, ("1",): 2},
        "in_flight": {("w0",): 3, ("w1",): 0},
        "concurrency_limit": {("w0",): 16, ("w1",): 4},
        "worker_up": {("w0",): 1, ("w1",): 0},
        "store_degraded": {(): 1},
    }
    assert source().take().gauges["store_degraded"] == {(): 0}


def test_a_snapshot_survives_the_way_through_a_file() -> None:
    snapshot = source(ledger_of(1.0), ((worker("w0"), True),), {0: 1}).take()
    assert plain(sent(snapshot)) == plain(snapshot)


def test_a_ledger_goes_on_from_a_snapshot() -> None:
    past = sent(source(ledger_of(1.0)).take())
    here = source(ledger_of(2.0))
    here.restore(past)
    both = total([sent(source(ledger_of(1.0)).take()), sent(source(ledger_of(2.0)).take())])
    assert plain(here.take()) | {"gauges": {}} == plain(both) | {"gauges": {}}
    assert here.take().counters["retries"] == {(): 2}


def test_counts_and_histograms_are_added_up() -> None:
    whole = total([sent(source(ledger_of(*seconds)).take()) for seconds in ((1.0,), (2.0, 4.0), ())])
    assert whole.counters["requests"] == {("chat", "small", "acme", "ok"): 3}
    assert whole.counters["retries"] == {(): 3}
    [tally] = whole.histograms["request_seconds"].values()
    assert (sum(tally.counts), tally.total) == (3, 7.0)
    assert [count for count in tally.counts if count] == [1, 1, 1]


def test_gauges_are_added_where_a_sum_says_something_and_else_the_largest_holds() -> None:
    one = source(workers=((worker("w0", 3, limit=16), True),), depth={0: 1}, degraded=True)
    other = source(workers=((worker("w0", 4, limit=16), False),), depth={0: 2, 1: 5}, degraded=True)
    well = source(workers=((worker("w0", limit=16), True),))
    assert total([one.take(), other.take(), well.take()]).gauges == {
        "queue_depth": {("0",): 3, ("1",): 5},
        "in_flight": {("w0",): 7},
        "concurrency_limit": {("w0",): 16},
        "worker_up": {("w0",): 1},
        "store_degraded": {(): 1},
    }


def test_nothing_adds_up_to_nothing() -> None:
    assert plain(total([])) == plain(Snapshot())

"""What has one process counted so far, in a form that can be kept, handed over, and added up?"""

import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field

from gateway.accounting import Labels, Ledger, Tallies
from gateway.metrics.families import GAUGES
from gateway.model import Worker
from gateway.tally import Tally

Value = TypeVar("Value")
TOGETHER = {gauge.name: gauge.together for gauge in GAUGES}


class Snapshot(Struct):
    """Series by the name of their family (`families`). The gauges are of that moment."""

    pid: int = 0
    counters: dict[str, dict[Labels, int]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Tally]] = field(default_factory=dict)
    gauges: dict[str, dict[Labels, float]] = field(default_factory=dict)


class Source:
    """Takes snapshots of this process.

    depth: how many requests wait, by bucket. workers: snapshots and whether each is up.
    """

    def __init__(
        self,
        ledger: Ledger,
        buckets: int,
        depth: Callable[[], Mapping[int, int]],
        workers: Callable[[], Sequence[tuple[Worker, bool]]],
        store_degraded: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._buckets = range(buckets)
        self._depth = depth
        self._workers = workers
        self._store_degraded = store_degraded

    def take(self) -> Snapshot:
        """To be read or written out at once: it still shares numbers with the ledger."""
        ledger = self._ledger
        ledger.fold()
        return Snapshot(
            os.getpid(),
            {**_counters(ledger), "retries": {(): ledger.retries}},
            {name: dict(tallies) for name, tallies in _tallies(ledger).items()},
            self._gauges(),
        )

    def restore(self, past: Snapshot) -> None:
        """Count on from there."""
        ledger = self._ledger
        ledger.retries += past.counters["retries"][()]
        for name, counter in _counters(ledger).items():
            counter.update(past.counters[name])
        for name, tallies in _tallies(ledger).items():
            for labels, tally in past.histograms[name].items():
                tallies[labels].merge(tally)

    def _gauges(self) -> dict[str, dict[Labels, float]]:
        waiting, workers = self._depth(), self._workers()
        return {
            "queue_depth": {(str(bucket),): waiting.get(bucket, 0) for bucket in self._buckets},
            "in_flight": {(worker.id,): worker.in_flight for worker, _ in workers},
            "concurrency_limit": {(worker.id,): worker.limit for worker, _ in workers},
            "worker_up": {(worker.id,): float(is_up) for worker, is_up in workers},
            "store_degraded": {(): float(self._store_degraded())},
        }


def total(snapshots: Iterable[Snapshot]) -> Snapshot:
    """All as if one process had counted it. What they hold goes into it, and is theirs no more."""
    whole = Snapshot()
    for one in snapshots:
        for name, counts in one.counters.items():
            _unite(whole.counters.setdefault(name, {}), counts, operator.add)
        for name, values in one.gauges.items():
            _unite(whole.gauges.setdefault(name, {}), values, TOGETHER[name])
        for name, tallies in one.histograms.items():
            _unite(whole.histograms.setdefault(name, {}), tallies, _merged)
    return whole


def _unite(
    whole: dict[Labels, Value], part: Mapping[Labels, Value], add: Callable[[Value, Value], Value]
) -> None:
    for labels, value in part.items():
        whole[labels] = add(whole[labels], value) if labels in whole else value


def _merged(whole: Tally, part: Tally) -> Tally:
    whole.merge(part)
    return whole


def _counters(ledger: Ledger) -> dict[str, Counter[Labels]]:
    return {
        "requests": ledger.requests,
        "tokens": ledger.tokens,
        "limited": ledger.limited,
        "worker_failures": ledger.worker_failures,
    }


def _tallies(ledger: Ledger) -> dict[str, Tallies]:
    return {
        "request_seconds": ledger.seconds,
        "ttft_seconds": ledger.ttft,
        "inter_token_seconds": ledger.inter_token,
        "overhead_seconds": ledger.overhead,
        "queue_wait_seconds": ledger.queue_wait,
        "store_seconds": ledger.store_seconds,
        "estimate_error_ratio": ledger.estimate_error,
    }

"""How are the numbers told to Prometheus?"""

import functools
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.metrics.board import Board
from gateway.metrics.families import COUNTERS, GAUGES, HISTOGRAMS, Family
from gateway.metrics.snapshot import Snapshot, Source, total

PREFIX = "gateway_"


class Metrics:
    """What GET /metrics answers: of this process or, with a board, of all that share it.

    The process_* metrics of several processes are told apart by the label `process`, the number of each.
    """

    def __init__(self, source: Source, board: Board | None = None) -> None:
        self._source = source
        self._board = board
        self._own = ProcessCollector(registry=None)

    async def text(self) -> bytes:
        if self._board is None:
            return generate_latest(_Exposition(self._source.take(), self._own.collect()))
        snapshots = await self._board.snapshots()
        pids = {number: one.pid for number, one in snapshots.items() if one.pid}
        return generate_latest(_Exposition(total(snapshots.values()), _of_processes(pids)))


class _Exposition(Collector):
    """A snapshot, and metrics of processes, for once."""

    def __init__(self, snapshot: Snapshot, processes: Iterable[Metric]) -> None:
        self._snapshot = snapshot
        self._processes = processes

    def collect(self) -> Iterator[Metric]:
        for family in COUNTERS:
            counter = CounterMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
            for labels, count in self._snapshot.counters.get(family.name, {}).items():
                counter.add_metric(labels, count)
            yield counter
        for family in HISTOGRAMS:
            yield self._histogram(family)
        for family in GAUGES:
            gauge = GaugeMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
            for labels, value in self._snapshot.gauges.get(family.name, {}).items():
                gauge.add_metric(labels, value)
            yield gauge
        yield from self._processes

    def _histogram(self, family: Family) -> Metric:
        histogram = HistogramMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
        for labels, tally in self._snapshot.histograms.get(family.name, {}).items():
            running, buckets = 0, []
            for bound, count in zip((*tally.bounds, float("inf")), tally.counts, strict=True):
                running += count
                buckets.append(("+Inf" if bound == float("inf") else str(bound), float(running)))
            histogram.add_metric(labels, buckets, tally.total)
        return histogram


def _of_processes(pids: Mapping[int, int]) -> Iterable[Metric]:
    """pids: by the number of the process."""
    families: dict[str, Metric] = {}
    for number, pid in pids.items():
        for metric in ProcessCollector(pid=functools.partial(int, pid), registry=None).collect():
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, {"process": str(number)}, sample.value)
    return families.values()

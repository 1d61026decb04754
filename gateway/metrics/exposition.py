"""How are the numbers told to Prometheus? In its text format, version 0.0.4."""

import functools
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.accounting import Labels
from gateway.metrics.board import Board
from gateway.metrics.families import COUNTERS, GAUGES, HISTOGRAMS, Family
from gateway.metrics.snapshot import Snapshot, Source
from gateway.tally import Tally

PREFIX = "gateway_"
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metrics:
    """What GET /metrics answers: of this process or, with a board, of all that share it.

    The process_* metrics of several processes are told apart by the label `process`, the number of each.
    """

    def __init__(self, source: Source, board: Board | None = None) -> None:
        self._source = source
        self._board = board
        self._own = ProcessCollector(registry=None)
        self._sheet = _Sheet()

    async def text(self) -> bytes:
        if self._board is None:
            snapshot, processes = self._source.take(), self._own.collect()
        else:
            snapshot, pids = await self._board.total()
            processes = _of_processes(pids)
        return "".join(self._sheet.lines(snapshot)).encode() + generate_latest(_Collected(processes))


class _Sheet:
    """Writes snapshots down. There are thousands of series: what comes before their numbers is made once."""

    def __init__(self) -> None:
        self._names: dict[str, dict[Labels, str]] = {}
        self._of_tallies: dict[str, dict[Labels, list[str]]] = {}

    def lines(self, snapshot: Snapshot) -> Iterator[str]:
        for family in COUNTERS:
            yield from self._plain(family, "counter", f"{family.name}_total", snapshot.counters)
        for family in HISTOGRAMS:
            yield _head(family, "histogram", family.name)
            for labels, tally in snapshot.histograms.get(family.name, {}).items():
                yield from self._histogram(family, labels, tally)
        for gauge in GAUGES:
            yield from self._plain(gauge, "gauge", gauge.name, snapshot.gauges)

    def _plain(
        self, family: Family, kind: str, name: str, snapshot: Mapping[str, Mapping[Labels, float]]
    ) -> Iterator[str]:
        yield _head(family, kind, name)
        names = self._names.setdefault(name, {})
        for labels, value in snapshot.get(family.name, {}).items():
            if (its := names.get(labels)) is None:
                its = names[labels] = _series(name, family.labels, labels)
            yield f"{its} {value}\n"

    def _histogram(self, family: Family, labels: Labels, tally: Tally) -> Iterator[str]:
        names = self._of_tallies.setdefault(family.name, {})
        if (its := names.get(labels)) is None:
            its = names[labels] = _names_of_tally(family, labels, tally)
        *buckets, count, total = its
        running = 0
        for name, more in zip(buckets, tally.counts, strict=True):
            running += more
            yield f"{name} {running}\n"
        yield f"{count} {running}\n{total} {tally.total}\n"


def _head(family: Family, kind: str, name: str) -> str:
    return f"# HELP {PREFIX}{name} {family.text}\n# TYPE {PREFIX}{name} {kind}\n"


def _names_of_tally(family: Family, labels: Labels, tally: Tally) -> list[str]:
    name, names = family.name, family.labels
    return [
        *(_series(f"{name}_bucket", (*names, "le"), (*labels, str(le))) for le in (*tally.bounds, "+Inf")),
        _series(f"{name}_count", names, labels),
        _series(f"{name}_sum", names, labels),
    ]


def _series(name: str, names: Labels, labels: Labels) -> str:
    pairs = sorted(zip(names, labels, strict=True))
    told = ",".join(f'{label}="{value.translate(ESCAPES)}"' for label, value in pairs)
    return f"{PREFIX}{name}{{{told}}}" if told else f"{PREFIX}{name}"


class _Collected(Collector):
    """Metrics, for once."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _of_processes(pids: Mapping[int, int]) -> Iterable[Metric]:
    """pids: by the number of the process."""
    families: dict[str, Metric] = {}
    for number, pid in pids.items():
        for metric in ProcessCollector(pid=functools.partial(int, pid), registry=None).collect():
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, {"process": str(number)}, sample.value)
    return families.values()

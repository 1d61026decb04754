"""How is a snapshot kept in a file, so that those of many processes are read and added up in little time?

There are thousands of counters, and seldom one with new labels. So the labels are kept apart from the counts:
whoever reads a file again needs but its numbers, and knows already where each belongs.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from gateway.accounting import Labels
from gateway.metrics.snapshot import Snapshot, total
from gateway.tally import Tally

_labels = msgspec.msgpack.Decoder(dict[str, list[Labels]])


class Kept(Struct, array_like=True):
    """A snapshot as it is in a file. counts: in the order of their labels, by the family's name."""

    pid: int
    labels: Raw  # dict[str, list[Labels]]
    counts: dict[str, list[int]]
    histograms: dict[str, dict[Labels, Tally]]
    gauges: dict[str, dict[Labels, float]]

    def snapshot(self) -> Snapshot:
        """As it was taken."""
        labels = _labels.decode(self.labels)
        counters = {
            name: dict(zip(labels[name], counts, strict=True)) for name, counts in self.counts.items()
        }
        return Snapshot(self.pid, counters, self.histograms, self.gauges)


_kept = msgspec.msgpack.Decoder(Kept)


class Packer:
    """Packs the snapshots of one process, whose counters never lose a series nor change their order."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._sizes: dict[str, int] = {}
        self._labels = Raw()

    def pack(self, taken: Snapshot) -> bytes:
        sizes = {name: len(counts) for name, counts in taken.counters.items()}
        if sizes != self._sizes:
            labels = {name: list(counts) for name, counts in taken.counters.items()}
            self._labels, self._sizes = Raw(self._encoder.encode(labels)), sizes
        counts = {name: list(counts.values()) for name, counts in taken.counters.items()}
        return self._encoder.encode(Kept(taken.pid, self._labels, counts, taken.histograms, taken.gauges))


def unpack(content: bytes) -> Kept:
    return _kept.decode(content)


class Adder:
    """Adds up what several processes keep, time and again."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Labels, int]] = {}  # of each series among all of its family
        self._known: dict[int, tuple[bytes, dict[str, list[int]]]] = {}  # of each process: the places of its

    def total(self, kept: Mapping[int, Kept]) -> Snapshot:
        """All as if one process had counted it. What they hold goes into it. kept: by process."""
        places = {number: self._places_of(number, bytes(one.labels)) for number, one in kept.items()}
        sums = {name: [0] * len(series) for name, series in self._places.items()}
        for number, one in kept.items():
            for name, counts in one.counts.items():
                whole = sums[name]
                for place, count in zip(places[number][name], counts, strict=True):
                    whole[place] += count
        all_together = total(Snapshot(0, {}, one.histograms, one.gauges) for one in kept.values())
        all_together.counters = {
            name: dict(zip(series, sums[name], strict=True)) for name, series in self._places.items()
        }
        return all_together

    def _places_of(self, number: int, labels: bytes) -> dict[str, list[int]]:
        known = self._known.get(number)
        if known is not None and known[0] == labels:
            return known[1]
        found = {name: self._place_all(name, series) for name, series in _labels.decode(labels).items()}
        self._known[number] = labels, found
        return found

    def _place_all(self, name: str, series: list[Labels]) -> list[int]:
        places = self._places.setdefault(name, {})
        return [places.setdefault(labels, len(places)) for labels in series]

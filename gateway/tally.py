"""Counts of observations by size: what a histogram is before it is scraped."""

from bisect import bisect_left
from collections.abc import Sequence


class Tally:
    """bounds: inclusive upper bounds, rising; what is above the last one is counted apart."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def merge(self, other: "Tally") -> None:
        """Add the counts of another tally with the same bounds."""
        for index, count in enumerate(other.counts):
            self.counts[index] += count
        self.total += other.total

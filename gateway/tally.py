"""Counts of observations by size: what a histogram is before it is scraped."""

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """bounds: inclusive upper bounds, rising. counts: by class; the last is of what is above all bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def merge(self, other: "Tally") -> None:
        """Add the counts of another tally with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

"""What came of the runs, and how do arms compare over the seeds?"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.routing.caller import Answer
from benchmarks.simulator.loads import quantile

QUANTILES = 200  # steps of the distributions that are kept: half a percent each
MAX_LATE_S = 0.05  # virtual; beyond it the machine was measured and not the routing
SIZES = ("short", "long")


@dataclass(frozen=True, slots=True)
class Run:
    """One load through one arm, as it is kept."""

    scenario: str
    load: str  # which of the scenario's
    arm: str
    seed: int
    workers_late_s: float  # at most, of a token of a simulated worker
    client_late_s: float  # at most, of a call
    usable: bool
    figures: dict[str, Any]
    ttft_s: dict[str, list[float]] = field(default_factory=dict)  # quantiles by size

    def kept(self) -> dict[str, Any]:
        """As JSON values, and what `Run(**kept)` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over the seeds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


class Runs:
    """Those of one scenario. A figure is named by its path, as "sizes.short.ttft_p99_s"."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all = list(runs)
        self._by: dict[tuple[str, str], dict[int, Run]] = {}
        for run in self.all:
            self._by.setdefault((run.load, run.arm), {})[run.seed] = run

    def pairs(self) -> list[tuple[str, str]]:
        """Each load with each arm that met it, in the order in which they were run."""
        return list(self._by)

    def has(self, load: str, *arms: str) -> bool:
        return all((load, arm) in self._by for arm in arms)

    def of(self, load: str, arm: str) -> list[Run]:
        """By seed."""
        return [run for _, run in sorted(self._by.get((load, arm), {}).items())]

    def spread(self, load: str, arm: str, figure: str) -> Spread | None:
        """None where no run has this figure."""
        found = [value for run in self.of(load, arm) if (value := value_of(run, figure)) is not None]
        return Spread.of(found) if found else None

    def ratio(
        self, figure: str, ours: tuple[str, str], theirs: Sequence[tuple[str, str]], best: Any = min
    ) -> float:
        """The median over the seeds of ours by the best of theirs, each a load and an arm.

        Only seeds that both have count; NaN without any.
        """
        found = []
        for seed, run in sorted(self._by.get(ours, {}).items()):
            others = [
                value_of(self._by[pair][seed], figure) for pair in theirs if seed in self._by.get(pair, {})
            ]
            known, own = [other for other in others if other is not None], value_of(run, figure)
            if own is not None and known:
                other = best(known)
                found.append(own / other if other else math.inf)
        return median(found) if found else math.nan


def value_of(run: Run, figure: str) -> float | None:
    """None where nobody knows: no call of this kind was answered."""
    value: Any = run.figures
    for name in figure.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else float(value)


def quantiles(values: Sequence[float]) -> list[float]:
    """QUANTILES + 1 of them from the lowest to the highest value, in ms precision; none of no values."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return (
        [round(ordered[round(last * step / QUANTILES)], 4) for step in range(QUANTILES + 1)]
        if ordered
        else []
    )


def waits_s(answers: Iterable[Answer]) -> list[float]:
    """For the first token, of those that were given it."""
    return [answer.ttft_s for answer in answers if answer.ttft_s is not None]


def others_figures(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Of those who are not the flood. answers: theirs, one at least."""
    waits = waits_s(answers)
    return {
        "n": len(answers),
        "ttft_p50_s": quantile(waits, 0.5) if waits else None,
        "ttft_p99_s": quantile(waits, 0.99) if waits else None,
        "unanswered_share": 1 - len(waits) / len(answers),
    }

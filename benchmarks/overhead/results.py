"""What came of the rounds, how do gateways compare within each, and what is ours held to?"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.overhead.contenders import (
    COMPILED_MEMORY,
    COMPILED_REDIS,
    FLOOD,
    MEMORY,
    NGINX,
    PLAIN,
    QUARTER,
    REDIS,
    SCALING,
    STREAM,
    TWO_PROCESSES,
    VLLM_ROUTER,
)
from benchmarks.targets import Row


@dataclass(frozen=True, slots=True)
class Result:
    """Of one contender in one round, as it is kept."""

    round: int
    contender: str
    phases: dict[str, dict[str, float]] = field(default_factory=dict)  # figures
    problem: str | None = None  # why they mean nothing

    def kept(self) -> dict[str, Any]:
        """As JSON values, and what `Result(**kept)` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over the rounds."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


class Results:
    """Those of all rounds. One with a problem has no figures, nor part in any ratio."""

    def __init__(self, results: Iterable[Result]) -> None:
        self.all = list(results)
        self._by: dict[str, dict[int, Result]] = {}
        for result in self.all:
            of = self._by.setdefault(result.contender, {})
            if result.problem is None:
                of[result.round] = result

    def contenders(self) -> list[str]:
        return list(self._by)

    def problems(self) -> list[str]:
        return [
            f"round {each.round}, {each.contender}: {each.problem}"
            for each in self.all
            if each.problem is not None
        ]

    def spread(self, contender: str, phase: str, figure: str) -> Spread | None:
        """None where there is no such figure."""
        values = list(self._values(contender, phase, figure).values())
        return Spread.of(values) if values else None

    def ratio(self, phase: str, figure: str, ours: str, theirs: str) -> Spread | None:
        """Within each round, which whatever else the machine did met both. None where no round has both."""
        mine, others = self._values(ours, phase, figure), self._values(theirs, phase, figure)
        ratios = [value / others[number] for number, value in mine.items() if others.get(number)]
        return Spread.of(ratios) if ratios else None

    def _values(self, contender: str, phase: str, figure: str) -> dict[int, float]:
        return {
            number: value
            for number, result in self._by.get(contender, {}).items()
            if (value := result.phases.get(phase, {}).get(figure)) is not None and math.isfinite(value)
        }


def rows(results: Results) -> list[Row]:
    """The medians of what was measured, held to the targets."""
    by_phase = (_plain(results), _stream(results), _flood(results), _quarter(results), _scaling(results))
    return [row for those in by_phase for row in those]


OURS = (MEMORY, REDIS, COMPILED_MEMORY, COMPILED_REDIS)
HELD = (REDIS, COMPILED_REDIS)  # to what is asked of the gateway with everything on


def _plain(results: Results) -> Iterator[Row]:
    for name in OURS:
        yield from _row(f"plain request: CPU, {name}", results.spread(name, PLAIN, "cpu_us"), "µs")
    for name in HELD:
        ratio = results.ratio(PLAIN, "cpu_us", name, VLLM_ROUTER)
        yield from _row(f"plain request: CPU, {name} / {VLLM_ROUTER}", ratio, at_most=1.0)
        ratio = results.ratio(PLAIN, "cpu_us", name, NGINX)
        yield from _row(f"plain request: CPU, {name} / {NGINX}", ratio)


def _stream(results: Results) -> Iterator[Row]:
    for name in OURS:
        yield from _row(f"chunk: CPU, {name}", results.spread(name, STREAM, "cpu_us"), "µs")
    for name in HELD:
        ratio = results.ratio(STREAM, "cpu_us", name, VLLM_ROUTER)
        yield from _row(f"chunk: CPU, {name} / {VLLM_ROUTER}", ratio, at_most=0.85)
        ratio = results.ratio(STREAM, "cpu_us", name, NGINX)
        yield from _row(f"chunk: CPU, {name} / {NGINX}", ratio, at_most=1.2)


def _flood(results: Results) -> Iterator[Row]:
    for name in (NGINX, VLLM_ROUTER, *OURS):
        spread = results.spread(name, FLOOD, "chunks_per_core_s")
        at_least = 30_000 if name in HELD else None
        yield from _row(f"flood: chunks a second and core, {name}", spread, "/s", at_least=at_least)


def _quarter(results: Results) -> Iterator[Row]:
    for name in (VLLM_ROUTER, *HELD):
        for figure in ("p50", "p99", "added p99"):
            spread = results.spread(name, QUARTER, f"{figure.replace(' ', '_')}_ms")
            yield from _row(f"a quarter: {figure}, {name}", spread, "ms")
    for name in HELD:
        ratio = results.ratio(QUARTER, "p99_ms", name, VLLM_ROUTER)
        yield from _row(f"a quarter: p99, {name} / {VLLM_ROUTER}", ratio, at_most=1.0)


def _scaling(results: Results) -> Iterator[Row]:
    ratio = results.ratio(SCALING, "predicted_per_s", TWO_PROCESSES, REDIS)
    yield from _row("two processes: requests a second, / one", ratio, at_least=1.8)


def _row(
    name: str,
    spread: Spread | None,
    unit: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
) -> Iterator[Row]:
    """None for what was not measured."""
    if spread is not None:
        yield Row(name, spread.median, unit, at_most, at_least)

"""How far is the engine from what was measured? A table, a row for each figure."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from benchmarks.simulator.costs import Costs
from benchmarks.simulator.measured import Figures, Measurements

WITHIN = 0.2  # of the measured figure
UNITS = {"out_tok_s": "output tokens/s", "tpot_p50_ms": "time per output token p50, ms"}
UNITS |= {"tpot_p99_ms": "time per output token p99, ms"}
UNITS |= {f"ttft_{which}": f"time to first token {which}, s" for which in ("mean", "p50", "p99")}
UNITS |= {f"e2e_{which}": f"end to end {which}, s" for which in ("p50", "p99")}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. kind: of the requests, where there are several."""

    load: str
    kind: str
    figure: str
    measured: float
    simulated: float

    @property
    def off(self) -> float:
        """Relative to what was measured."""
        return self.simulated / self.measured - 1

    @property
    def is_near(self) -> bool:
        return abs(self.off) <= WITHIN


def rows(measurements: Measurements, costs: Costs) -> list[Row]:
    """All figures of all loads, which are played for it: some ten seconds."""
    return [*_closed_loop(measurements, costs), *_mixed(measurements, costs)]


def _closed_loop(measurements: Measurements, costs: Costs) -> Iterator[Row]:
    for load in measurements.closed_loop:
        yield from _compared(load.name, "", load.measured, load.simulated(costs))


def _mixed(measurements: Measurements, costs: Costs) -> Iterator[Row]:
    for load in measurements.mixed:
        simulated = load.simulated(costs)
        for kind, measured in load.measured.items():
            yield from _compared(load.name, kind, measured, simulated[kind])


def _compared(load: str, kind: str, measured: Figures, simulated: Figures) -> Iterator[Row]:
    for figure, value in measured.items():
        yield Row(load, kind, figure, value, simulated[figure])


def table(found: list[Row]) -> Table:
    shown = Table("load", "requests", "figure", "measured", "simulated", "off")
    for row in found:
        off = f"{row.off:+.0%}" if row.is_near else f"[bold]{row.off:+.0%}[/bold]"
        figures = (f"{value:.4g}" for value in (row.measured, row.simulated))
        shown.add_row(row.load, row.kind, UNITS[row.figure], *figures, off)
    return shown

"""How are the runs kept and shown? One JSON object, whose last member has a run a line; and tables of it."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import record, targets
from benchmarks.command import CannotStart
from benchmarks.routing.arms import ARMS
from benchmarks.routing.results import MAX_LATE_S, Run, Runs, Spread
from benchmarks.routing.rivals import RIVALS
from benchmarks.routing.scenarios import SCENARIOS
from benchmarks.targets import Row

DISTRIBUTIONS = ("vllm-gateway", "httptools", "msgspec", "uvicorn", "uvloop")
COLUMNS = {  # figure: head, factor, digits
    "sizes.short.ttft_p50_s": ("short TTFT p50 ms", 1e3, 0),
    "sizes.short.ttft_p99_s": ("short TTFT p99 ms", 1e3, 0),
    "sizes.long.ttft_p50_s": ("long TTFT p50 ms", 1e3, 0),
    "sizes.long.ttft_p99_s": ("long TTFT p99 ms", 1e3, 0),
    "sizes.all.ttft_mean_s": ("mean TTFT ms", 1e3, 0),
    "sizes.all.tpot_p99_s": ("TPOT p99 ms", 1e3, 0),
    "goodput_rps": ("good/s", 1, 1),
    "hit_share": ("prefix hits %", 100, 0),
    "jain": ("Jain", 1, 2),
    "shed_share": ("shed %", 100, 1),
    "failed_share": ("failed %", 100, 1),
    "cut_share": ("cut %", 100, 1),
    "gave_up_share": ("gave up %", 100, 1),
    "wasted_tokens": ("wasted tokens", 1, 0),
}


def document(
    parameters: Mapping[str, Any], started_at: datetime, capacity_rps: float | None, runs: Sequence[Run]
) -> dict[str, Any]:
    """Everything about an invocation as JSON values. capacity_rps: of the mixed load; None: not asked for."""
    rivals = {ARMS[run.arm].router for run in runs} & set(RIVALS)
    return {
        "benchmark": "routing",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": dict(parameters),
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS) | {name: RIVALS[name].version for name in sorted(rivals)},
        "commit": record.commit(),
        "capacity_rps": capacity_rps,
        "rows": [_kept(name, row) for name, found in judged(runs) for row in found],
        "runs": [run.kept() for run in runs],
    }


def _kept(scenario: str, row: Row) -> dict[str, Any]:
    """JSON has neither NaN, where nothing was to be compared, nor infinity."""
    return {"scenario": scenario, **row.kept(), "value": row.value if math.isfinite(row.value) else None}


def read(file: Path) -> list[Run]:
    """The runs of a kept document. Raises CannotStart where it is none."""
    try:
        return [Run(**kept) for kept in json.loads(file.read_text(encoding="utf-8"))["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotStart(f"{file} holds no results of this benchmark: {error!r}") from error


def by_scenario(runs: Iterable[Run]) -> dict[str, Runs]:
    """In the order in which they are listed."""
    found: dict[str, list[Run]] = {name: [] for name in SCENARIOS}
    for run in runs:
        found[run.scenario].append(run)
    return {name: Runs(those) for name, those in found.items() if those}


def judged(runs: Iterable[Run]) -> list[tuple[str, list[Row]]]:
    """The rows of each scenario: its targets, and whether the machine kept up."""
    return [
        (name, [*SCENARIOS[name].rows(those), _kept_up(those)]) for name, those in by_scenario(runs).items()
    ]


def _kept_up(runs: Runs) -> Row:
    late = sum(not run.usable for run in runs.all)
    return Row(f"runs in which workers or client were over {MAX_LATE_S:g} s late", late, "", at_most=0)


def tables(runs: Iterable[Run]) -> list[Table]:
    """For each scenario what was measured, and what it is held to."""
    shown = list(runs)
    return [
        table
        for (name, those), (_, rows) in zip(by_scenario(shown).items(), judged(shown), strict=True)
        for table in (_measured(name, those), targets.table("", rows))
    ]


def _measured(name: str, runs: Runs) -> Table:
    """A line for each load and arm; medians over the seeds, and under them the lowest and highest.

    A figure that nobody has, or that is 0 for all, gets no column.
    """
    pairs = runs.pairs()
    columns = {
        figure: column
        for figure, column in COLUMNS.items()
        if any((found := runs.spread(load, arm, figure)) and found.highest for load, arm in pairs)
    }
    shown = Table(title=SCENARIOS[name].question, title_justify="left")
    shown.add_column("load", style="cyan")
    shown.add_column("arm", style="cyan", no_wrap=True)
    for head, _, _ in columns.values():
        shown.add_column(head, justify="right")
    shown.add_column("late")
    for load, arm in pairs:
        cells = [
            _cell(runs.spread(load, arm, figure), factor, digits)
            for figure, (_, factor, digits) in columns.items()
        ]
        late = sum(not run.usable for run in runs.of(load, arm))
        shown.add_row(load, arm, *cells, f"[red]{late}" if late else "")
    return shown


def _cell(spread: Spread | None, factor: float, digits: int) -> str:
    if spread is None:
        return ""
    middle, lowest, highest = (
        f"{value * factor:.{digits}f}" for value in (spread.median, spread.lowest, spread.highest)
    )
    return middle if lowest == highest else f"{middle}\n{lowest}-{highest}"

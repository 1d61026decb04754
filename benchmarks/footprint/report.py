"""How is the footprint shown and kept? Rows, the table for people, the JSON object for later."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from benchmarks import record

DISTRIBUTIONS = (
    "vllm-gateway",
    "httptools",
    "msgspec",
    "starlette",
    "uvicorn",
    "uvloop",
    "openai",
    "httpx2",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `at_most` is its target; None: it is there to read the others by."""

    name: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.at_most is None else self.value <= self.at_most


def table(rows: Sequence[Row]) -> Table:
    """A figure a row, with its target where it has one."""
    shown = Table(title="one gateway process", title_justify="left")
    shown.add_column("figure", style="cyan")
    shown.add_column("measured", justify="right")
    shown.add_column("target", justify="right")
    shown.add_column("met")
    words = {True: "[green]yes", False: "[red]no", None: ""}
    for row in rows:
        target = "" if row.at_most is None else f"≤ {row.at_most:g} {row.unit}"
        shown.add_row(row.name, f"{round(row.value, 1):g} {row.unit}", target, words[row.met])
    return shown


def document(parameters: dict[str, Any], started_at: datetime, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything about a run as JSON values. The targets are upper limits, in the row's unit."""
    return {
        "benchmark": "footprint",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": parameters,
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS),
        "commit": record.commit(),
        "rows": [
            {"name": of.name, "value": of.value, "unit": of.unit, "target": of.at_most, "met": of.met}
            for of in rows
        ],
    }

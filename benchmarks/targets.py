"""Which figures have targets, and are they met? Rows, the table for people, JSON values for later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. With neither target it is there to read the others by."""

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str:
        """As people write it; "" without one."""
        if self.at_most is not None and self.at_most == self.at_least:
            return f"= {_shown(self.at_most, self.unit)}"
        bounds = (("≥", self.at_least), ("≤", self.at_most))
        return ", ".join(f"{sign} {_shown(bound, self.unit)}" for sign, bound in bounds if bound is not None)

    @property
    def met(self) -> bool | None:
        """None without a target."""
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def kept(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "met": self.met,
        }


def table(title: str, rows: Sequence[Row]) -> Table:
    """A figure a row, with its target where it has one."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("figure", style="cyan")
    shown.add_column("measured", justify="right")
    shown.add_column("target", justify="right")
    shown.add_column("met")
    words = {True: "[green]yes", False: "[red]no", None: ""}
    for row in rows:
        shown.add_row(row.name, _shown(row.value, row.unit), row.target, words[row.met])
    return shown


def _shown(value: float, unit: str) -> str:
    return f"{round(value, 2):.12g} {unit}".rstrip()

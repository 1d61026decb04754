"""How is usage told? Rows → sums by what a reader asks for, as a table, CSV or JSON."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.usage.rows import UsageRow

if TYPE_CHECKING:
    from rich.table import Table

DIMENSIONS = ("day", "tenant", "key", "model", "outcome")
MEASURES = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")

Line = dict[str, str | int]  # the dimensions that were asked for, then all measures


class Report(Struct, frozen=True):
    """Usage by some dimensions. As JSON it is the answer of the admin API and of `gateway usage --json`."""

    by: tuple[str, ...]
    data: list[Line]  # sorted by the dimensions, in the order of `by`
    total: Line  # measures only

    @classmethod
    def of(cls, rows: Iterable[UsageRow], by: Sequence[str]) -> "Report":
        """by: some of DIMENSIONS."""
        sums: dict[tuple[str, ...], list[int]] = {}
        total = [0] * len(MEASURES)
        for row in rows:
            line = sums.setdefault(tuple(getattr(row, name) for name in by), [0] * len(MEASURES))
            for index, name in enumerate(MEASURES):
                line[index] += getattr(row, name)
                total[index] += getattr(row, name)
        data: list[Line] = [
            {**dict(zip(by, labels, strict=True)), **_measured(counts)}
            for labels, counts in sorted(sums.items())
        ]
        return cls(tuple(by), data, _measured(total))

    def as_csv(self) -> str:
        """A header, then a line for each of `data`. The total is left to whoever adds up."""
        text = io.StringIO()
        writer = csv.DictWriter(text, (*self.by, *MEASURES), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        return text.getvalue()

    def as_table(self) -> "Table":
        """Nothing is folded or cut: print it with room."""
        # Loaded here: the server tells usage, too, and prints none.
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE, show_footer=True, show_edge=False, padding=(0, 1, 0, 0))
        for index, name in enumerate(self.by):
            table.add_column(name, footer="" if index else "total")
        for name in MEASURES:
            table.add_column(name.replace("_", "\n"), footer=f"{self.total[name]:,}", justify="right")
        for line in self.data:
            labels = (Text(str(line[name])) for name in self.by)  # as plain str, "a:cat:b" would show a cat
            table.add_row(*labels, *(f"{line[name]:,}" for name in MEASURES))
        return table


def dimensions(text: str) -> tuple[str, ...]:
    """Of a list with commas, as "day,tenant". Raises ValueError, which says what may be asked for."""
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(DIMENSIONS) or len(set(names)) < len(names):
        raise ValueError(f"must be some of {', '.join(DIMENSIONS)}, with commas between, each once")
    return names


def _measured(counts: Sequence[int]) -> Line:
    return dict(zip(MEASURES, counts, strict=True))

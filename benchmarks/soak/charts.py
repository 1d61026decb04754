"""What does a soak look like? One PNG: memory, files and sockets, and Redis over the hours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

WIDTH_IN = 9.0
PANEL_IN = 1.9
DPI = 150
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}
# Of each panel: its title, and how the names of its series begin.
PANELS = {
    "Memory of each process (PSS), MB": ("PSS",),
    "Open files and sockets": ("files", "sockets"),
    "Keys in Redis": ("keys",),
    "Memory of Redis, MB": ("memory of Redis",),
}


def draw(at_s: Sequence[float], looks: Sequence[Mapping[str, float]], file: Path) -> None:
    """Write the chart. Raises OSError."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, PANEL_IN * len(PANELS)), layout="constrained")
        minutes = [at / 60 for at in at_s]
        panels = figure.subplots(len(PANELS), 1, sharex=True)
        for ax, (title, starts) in zip(panels, PANELS.items(), strict=True):
            names = [name for name in looks[0] if name.startswith(starts)]
            for name in names:
                ax.plot(minutes, [look[name] for look in looks], label=name, linewidth=1.0)
            ax.set_ylim(bottom=0)
            ax.set_title(title)
            ax.grid(visible=True, axis="y")
            if len(names) > 1:
                ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=7)
        panels[-1].set_xlabel("minutes")
        figure.savefig(file, dpi=DPI)

"""What do the results look like? One PNG for a README: processor time of a request and of a chunk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.overhead.contenders import CONTENDERS, PLAIN, STREAM
from benchmarks.overhead.results import Results, Spread

FILE = "overhead.png"
WIDTH_IN = 9.0  # at 200 dots an inch twice the 900 pixels of a README's column
DPI = 200
BAR_IN = 0.38  # for each, with what is between them
REST_IN = 1.1  # titles, scale
OURS, OTHERS = "#0072B2", "#999999"
LOGARITHMIC_FROM = 20.0  # times the smallest: beyond it, bars of the others would be stumps
PANELS = {PLAIN: "CPU of a plain request, µs", STREAM: "CPU of a streamed chunk, µs"}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}

Bars = Sequence[tuple[str, Spread]]


def draw(results: Results, folder: Path) -> Path:
    """Write the chart. Raises OSError. Returns the file."""
    file = folder / FILE
    with mpl.rc_context(STYLE):
        costs(results).savefig(file, dpi=DPI)
    return file


def costs(results: Results) -> Figure:
    """Medians over the rounds, with the lowest and highest, of all who have such a figure."""
    panels = {phase: bars(results, phase) for phase in PANELS}
    most = max(map(len, panels.values()))
    figure = Figure(figsize=(WIDTH_IN, REST_IN + BAR_IN * most), layout="constrained")
    for ax, (phase, those) in zip(figure.subplots(1, len(PANELS)), panels.items(), strict=True):
        _draw_bars(ax, those)
        ax.set_title(PANELS[phase])
    return figure


def bars(results: Results, phase: str) -> Bars:
    """In the order in which contenders are listed. Without a gateway there is none."""
    found = ((name, results.spread(name, phase, "cpu_us")) for name in CONTENDERS)
    return [(name, spread) for name, spread in found if spread is not None and spread.median > 0]


def _draw_bars(ax: Axes, those: Bars) -> None:
    if not those:
        ax.set_axis_off()
        return
    values = [spread.median for _, spread in those]
    places = range(len(those))
    ax.barh(
        places,
        values,
        color=[OURS if CONTENDERS[name].is_ours else OTHERS for name, _ in those],
        xerr=[
            [spread.median - spread.lowest for _, spread in those],
            [spread.highest - spread.median for _, spread in those],
        ],
        error_kw={"ecolor": "#444444", "elinewidth": 0.9},
    )
    ax.set_yticks(places, [name for name, _ in those])
    ax.invert_yaxis()
    if max(values) > LOGARITHMIC_FROM * min(values):
        ax.set_xscale("log")
        ax.set_xlim(min(values) / 2, max(spread.highest for _, spread in those) * 6)
        ax.xaxis.set_major_locator(LogLocator())
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(0, max(spread.highest for _, spread in those) * 1.2)
    for place, (_, spread) in zip(places, those, strict=True):
        ax.annotate(
            label(spread.median), (spread.highest, place), (4, 0), textcoords="offset points", va="center"
        )
    ax.grid(True, axis="x")
    ax.set_axisbelow(True)


def label(value: float) -> str:
    """Three digits, as far as there are so many before the point."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"

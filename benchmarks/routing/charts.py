"""What do the results look like? Two PNGs for a README: waits by percentile, and goodput against load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.routing.results import QUANTILES, Runs
from benchmarks.routing.scenarios import BUSY, GOODPUT, LOADS, OURS

WIDTH_IN = 9.0  # at 200 dots an inch twice the 900 pixels of a README's column
DPI = 200
LINE_IN = 0.19  # from one name to the next
# Okabe and Ito, "Color Universal Design" (2008): told apart also by the colour-blind. Yellow is too pale.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}
SHARES = (0.0, 0.5, 0.9, 0.99, 0.995)  # that are marked; the scale is that of 1 - share
SIZES = {"short": "Prompts of 50 to 800 tokens", "long": "Prompts of 8,000 to 24,000 tokens"}
TTFT_FILE = "routing-ttft.png"
GOODPUT_FILE = "routing-goodput.png"


class _End(NamedTuple):
    """Of a line: where its name goes."""

    arm: str
    x: float
    y: float
    colour: str


def draw(runs: Mapping[str, Runs], folder: Path) -> list[Path]:
    """Write the charts of the scenarios that are there. Raises OSError. Returns the files."""
    made = []
    with mpl.rc_context(STYLE):
        if "mixed" in runs:
            made.append(_save(waits(runs["mixed"]), folder / TTFT_FILE))
        if "overload" in runs:
            made.append(_save(goodput(runs["overload"]), folder / GOODPUT_FILE))
    return made


def _save(figure: Figure, file: Path) -> Path:
    figure.savefig(file, dpi=DPI)
    return file


def waits(runs: Runs) -> Figure:
    """Time to first token of each percentile, by size and arm: the median of the seeds' percentiles.

    It is the distribution turned on its side, so that lines end where their names can stand.
    """
    figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(len(SIZES), 1, sharex=True)
    for ax, (size, title) in zip(axes, SIZES.items(), strict=True):
        _distributions(figure, ax, runs, size)
        ax.set_title(f"{title}: time to first token, s")
    axes[-1].set_xlabel("share of requests that waited no longer")
    return figure


def _distributions(figure: Figure, ax: Axes, runs: Runs, size: str) -> None:
    shares = np.arange(QUANTILES + 1) / QUANTILES
    ax.set_xscale("function", functions=(_stretched, _shrunk))
    ax.set_yscale("log")
    ends = []
    for arm, colour, dash in _styles(arm for _, arm in runs.pairs()):
        kept = [run.ttft_s[size] for run in runs.of(str(BUSY), arm) if run.ttft_s.get(size)]
        if kept:
            middle = [median(values) for values in zip(*kept, strict=True)]
            ax.plot(shares, middle, dash, color=colour, lw=_width(arm))
            ends.append(_End(arm, SHARES[-1], middle[round(SHARES[-1] * QUANTILES)], colour))
    ax.set_xlim(0, SHARES[-1])
    ax.set_xticks(SHARES, [f"{share:.1%}".replace(".0%", "%") for share in SHARES])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(True)
    _name(figure, ax, ends)


def _stretched(share: Any) -> Any:
    """Each further nine of the share takes the same room."""
    return -np.log10(1.001 - np.asarray(share))


def _shrunk(room: Any) -> Any:
    return 1.001 - 10.0 ** -np.asarray(room)


def goodput(runs: Runs) -> Figure:
    """Requests answered within the SLO a second, against the load: medians, lowest and highest."""
    figure = Figure(figsize=(WIDTH_IN, 4.0), layout="constrained")
    ax = figure.subplots()
    ends = []
    for arm, colour, dash in _styles(arm for _, arm in runs.pairs()):
        found = [(float(load), runs.spread(load, arm, GOODPUT)) for load in LOADS]
        points = [(load, spread) for load, spread in found if spread is not None]
        if points:
            x, y = [load for load, _ in points], [spread.median for _, spread in points]
            lowest, highest = ([getattr(each, name) for _, each in points] for name in ("lowest", "highest"))
            ax.plot(x, y, dash, marker="o", ms=4, color=colour, lw=_width(arm))
            ax.fill_between(x, lowest, highest, color=colour, alpha=0.15, lw=0)
            ends.append(_End(arm, x[-1], y[-1], colour))
    ax.axvline(1.0, color="#777777", lw=0.8, ls=":")
    ax.set_xlabel("offered load, as a share of capacity")
    ax.set_title("Requests answered within the SLO, a second")
    ax.set_xticks([float(load) for load in LOADS], LOADS)
    ax.set_xlim(float(LOADS[0]), float(LOADS[-1]))
    ax.set_ylim(bottom=0)
    ax.grid(True)
    _name(figure, ax, ends)
    return figure


def _styles(arms: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each arm with its colour and dash; no two alike, as far as there are fewer than all of both."""
    for arm, (dash, colour) in zip(dict.fromkeys(arms), product(DASHES, COLOURS), strict=False):
        yield arm, colour, dash


def _width(arm: str) -> float:
    return 2.8 if arm == OURS else 1.6


def _name(figure: Figure, ax: Axes, ends: Sequence[_End]) -> None:
    """Write each line's name beside its end, or as near as the other names allow."""
    to_share = ax.transData + ax.transAxes.inverted()
    heights = [float(to_share.transform((end.x, end.y))[1]) for end in ends]
    height_in = ax.get_position().height * figure.get_figheight()
    gap = LINE_IN / height_in
    for end, height in zip(ends, _apart(heights, gap), strict=True):
        ax.annotate(
            end.arm,
            (end.x, end.y),
            (1.06, height),
            textcoords="axes fraction",
            color=end.colour,
            weight="bold" if end.arm == OURS else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "lw": 0.7,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """In the same order from bottom to top, no two nearer than the gap, and where that fits none above 1."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    for lower, upper in pairwise(order):
        placed[upper] = max(placed[upper], placed[lower] + gap)
    ceiling = 1.0
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed

"""Does the chart show everybody's cost of a request and of a chunk, so that both can be read?"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from benchmarks.overhead import charts
from benchmarks.overhead.contenders import DIRECT, LITELLM, MEMORY, NGINX, REDIS, TWO_PROCESSES, VLLM_ROUTER
from benchmarks.overhead.results import Result, Results
from tests.benchmarks.overhead.made import result

COSTS = {DIRECT: 0.0, REDIS: 90.0, NGINX: 17.04, VLLM_ROUTER: 70.0, MEMORY: 80.0}


def results(**more: float) -> list[Result]:
    return [
        result(name, number, plain={"cpu_us": us * number}, stream={"cpu_us": us / 4})
        for name, us in (COSTS | more).items()
        for number in (1, 2, 3)
    ]


def drawn(*those: Result) -> Sequence[Axes]:
    return charts.costs(Results(those)).axes


def names(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def widths(ax: Axes) -> list[float]:
    return [patch.get_width() for patch in ax.patches if isinstance(patch, Rectangle)]


def test_it_is_wide_enough_for_a_readme(tmp_path: Path) -> None:
    file = charts.draw(Results(results()), tmp_path)
    assert file == tmp_path / "overhead.png"
    assert imread(file).shape[1] == 1800


def test_each_gateway_has_a_bar_of_its_median_and_the_figure_beside_it() -> None:
    plain, stream = drawn(*results())
    assert names(plain) == names(stream) == [NGINX, VLLM_ROUTER, MEMORY, REDIS]
    assert widths(plain) == pytest.approx([34.08, 140, 160, 180])
    assert [text.get_text() for text in plain.texts] == ["34.1", "140", "160", "180"]
    assert [text.get_text() for text in stream.texts] == ["4.3", "17.5", "20.0", "22.5"]
    assert plain.get_xscale() == stream.get_xscale() == "linear"


def test_ours_stand_out() -> None:
    plain, _ = drawn(*results())
    colours = [patch.get_facecolor() for patch in plain.patches]
    assert colours[0] == colours[1] != colours[2] == colours[3]


def test_beside_somebody_very_slow_the_scale_is_logarithmic() -> None:
    plain, stream = drawn(*results(**{LITELLM: 12_345.0}))
    assert plain.get_xscale() == stream.get_xscale() == "log"
    assert names(plain)[3:] == [MEMORY, REDIS] or LITELLM in names(plain)
    assert plain.texts[names(plain).index(LITELLM)].get_text() == "24,690"


def test_who_was_not_measured_in_a_phase_has_no_bar_there() -> None:
    plain, stream = drawn(
        result(REDIS, plain={"cpu_us": 90.0}), result(TWO_PROCESSES, scaling={"cpu_us": 95.0})
    )
    assert names(plain) == [REDIS]
    assert widths(stream) == []

"""Do the charts show each arm's figures, for the scenarios that were run?"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from benchmarks.routing import charts
from benchmarks.routing.arms import ARMS
from benchmarks.routing.results import QUANTILES, Runs
from benchmarks.routing.scenarios import LOADS, OURS, ROUND_ROBIN, WITHOUT_ADMISSION
from tests.benchmarks.routing.made import run

MIXED = Runs(run("mixed", "0.7", arm, seed) for arm in (OURS, ROUND_ROBIN) for seed in (1, 2, 3))
OVERLOAD = Runs(
    run("overload", load, arm, seed, goodput_rps=float(load) * 10 * seed)
    for arm in (OURS, WITHOUT_ADMISSION)
    for load in LOADS
    for seed in (1, 2, 3)
)


def test_the_scenarios_that_were_run_are_drawn_wide_enough_for_a_readme(tmp_path: Path) -> None:
    made = charts.draw({"mixed": MIXED, "overload": OVERLOAD}, tmp_path)
    assert [file.name for file in made] == ["routing-ttft.png", "routing-goodput.png"]
    for file in made:
        assert imread(file).shape[1] == 1800


def test_nothing_is_drawn_of_what_was_not_run(tmp_path: Path) -> None:
    assert charts.draw({"kill": Runs([])}, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_waits_are_drawn_by_size_and_arm_and_each_line_is_named() -> None:
    short, long = charts.waits(MIXED).axes
    for ax, factor in ((short, 1.0), (long, 10.0)):
        ours, other = ax.get_lines()
        assert [text.get_text() for text in ax.texts] == [OURS, ROUND_ROBIN]
        assert [text.get_color() for text in ax.texts] == [ours.get_color(), other.get_color()]
        assert ours.get_linewidth() > other.get_linewidth()
        shares, waits = (np.asarray(values) for values in ours.get_data())
        assert len(shares) == QUANTILES + 1
        assert (shares[100], waits[100]) == (0.5, pytest.approx(0.101 * factor))
        assert ax.get_yscale() == "log"


def test_an_arm_of_which_no_long_prompt_was_answered_has_no_line() -> None:
    silent = run("mixed", "0.7", OURS)
    silent.ttft_s["long"] = []
    short, long = charts.waits(Runs([silent])).axes
    assert (len(short.get_lines()), len(long.get_lines())) == (1, 0)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 0.995])
def test_the_scale_of_shares_can_be_read_backwards(share: float) -> None:
    assert charts._shrunk(charts._stretched(share)) == pytest.approx(share)


def test_a_further_nine_takes_about_as_much_room_as_the_one_before() -> None:
    rooms = [charts._stretched(share) for share in (0.0, 0.9, 0.99)]
    assert rooms[1] - rooms[0] == pytest.approx(rooms[2] - rooms[1], rel=0.05)


def test_goodput_is_drawn_against_the_load_with_its_spread() -> None:
    [ax] = charts.goodput(OVERLOAD).axes
    loads, good = (np.asarray(values) for values in ax.get_lines()[0].get_data())
    assert list(loads) == [float(load) for load in LOADS]
    assert list(good) == [20 * float(load) for load in LOADS]
    assert [text.get_text() for text in ax.texts] == [OURS, WITHOUT_ADMISSION]
    band = np.asarray(ax.collections[0].get_paths()[0].vertices)
    assert (band[:, 1].min(), band[:, 1].max()) == (5.0, 45.0)


@given(st.lists(st.floats(0, 1), max_size=9))
def test_names_keep_their_order_and_their_distance(heights: list[float]) -> None:
    placed = charts._apart(heights, 0.1)
    ranked = [placed[index] for index in sorted(range(len(heights)), key=lambda index: heights[index])]
    assert all(upper - lower >= 0.1 - 1e-9 for lower, upper in pairwise(ranked))
    assert all(height <= 1 for height in placed)


def test_a_name_that_has_room_stays_where_its_line_ends() -> None:
    assert charts._apart([0.2, 0.9, 0.5], 0.1) == [0.2, 0.9, 0.5]


def test_no_two_arms_look_alike() -> None:
    looks = [(colour, dash) for _, colour, dash in charts._styles(ARMS)]
    assert len(set(looks)) == len(ARMS)


def test_an_arm_without_goodput_has_no_line() -> None:
    [ax] = charts.goodput(Runs([run("overload", "0.5", OURS)])).axes
    assert len(ax.texts) == 0

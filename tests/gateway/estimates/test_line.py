"""Does the line follow what is observed, and only that?"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimates.line import KEPT, LEAST, Line


def taught(line: Line, floor: float, slope: float, observations: int, noise: float = 0.0) -> Line:
    chance = random.Random(4)
    for _ in range(observations):
        x = chance.uniform(0, 2000)
        line.learn(x, (floor + slope * x) * max(0.1, chance.gauss(1, noise)))
    return line


@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0, 40.0])
def test_a_line_is_found_from_a_start_far_off(factor: float) -> None:
    line = taught(Line(1.0, 0.001), factor, 0.001 * factor, 100)
    assert line.floor == pytest.approx(factor, rel=0.1)
    assert line.slope == pytest.approx(0.001 * factor, rel=0.1)


def test_noise_averages_out() -> None:
    line = taught(Line(1.0, 0.001), 2.0, 0.003, 200, noise=0.1)
    assert line.floor == pytest.approx(2.0, rel=0.15)
    assert line.slope == pytest.approx(0.003, rel=0.15)


def test_the_terms_come_apart_though_they_began_in_another_proportion() -> None:
    line = taught(Line(1.0, 0.001), 3.0, 0.0005, 200)
    assert line.floor == pytest.approx(3.0, rel=0.05)
    assert line.slope == pytest.approx(0.0005, rel=0.1)


def test_what_was_true_earlier_is_forgotten() -> None:
    line = taught(taught(Line(1.0, 0.001), 1.0, 0.001, 1000), 2.0, 0.002, 100)
    assert line.slope == pytest.approx(0.002, rel=0.05)
    assert KEPT**100 < 0.01


def test_observations_of_one_size_move_the_line_without_turning_it() -> None:
    line = Line(1.0, 0.001)
    for _ in range(200):
        line.learn(1000, 6.0)
    assert line.floor + 1000 * line.slope == pytest.approx(6.0)
    assert line.floor == pytest.approx(3.0)


@pytest.mark.parametrize("seen", [1e-9, 1e9])
def test_one_observation_far_off_weighs_no_more_than_one_twice_or_half(seen: float) -> None:
    line, other = taught(Line(1.0, 0.001), 1.0, 0.001, 50), taught(Line(1.0, 0.001), 1.0, 0.001, 50)
    line.learn(1000, seen)
    other.learn(1000, 4.0 if seen > 1 else 1.0)
    assert (line.floor, line.slope) == pytest.approx((other.floor, other.slope))
    assert (line.floor, line.slope) != pytest.approx((1.0, 0.001), rel=0.001)


def test_an_observation_that_is_trusted_half_moves_the_line_less() -> None:
    whole, half, none = Line(1.0, 0.001), Line(1.0, 0.001), Line(1.0, 0.001)
    whole.learn(1000, 3.0)
    half.learn(1000, 3.0, 0.5)
    none.learn(1000, 3.0, 0.0)
    assert 0.001 == none.slope < half.slope < whole.slope


def test_the_less_the_present_line_is_held_to_the_quicker_it_moves() -> None:
    loose, tight = Line(1.0, 0.001, held=0.01), Line(1.0, 0.001)
    loose.learn(1000, 3.0)
    tight.learn(1000, 3.0)
    assert loose.slope > tight.slope
    assert loose.floor + 1000 * loose.slope == pytest.approx(3.0, rel=0.02)


def test_where_the_best_line_would_begin_below_zero_the_best_other_is_taken() -> None:
    line = Line(1.0, 0.001)
    for _ in range(200):
        for x in (1000, 2000, 3000):
            line.learn(x, 0.004 * x - 3.0)
    assert line.floor == pytest.approx(LEAST)
    assert 0.001 < line.slope < 0.003


def test_where_the_best_line_would_fall_it_lies_flat_through_what_was_seen() -> None:
    line = Line(1.0, 0.001)
    for _ in range(200):
        for x in (0, 1000, 2000):
            line.learn(x, 4.0 - 0.001 * x)
    assert line.slope == pytest.approx(0.001 * LEAST)
    assert 2.0 < line.floor < 4.0


sizes = st.floats(0, 1e6)
seconds = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(sizes, seconds, st.floats(0, 1)), max_size=200))
def test_whatever_is_observed_both_terms_stay_positive_and_within_what_was_seen(
    observed: list[tuple[float, float, float]],
) -> None:
    line = Line(1.0, 0.001)
    highest = max([1.0, *(y / (1.0 + 0.001 * x) for x, y, _ in observed)])
    for x, y, weight in observed:
        line.learn(x, y, weight)
        assert line.floor > 0
        assert line.slope > 0
        assert line.floor + line.slope * x < 100 * highest * (1 + 0.001 * x)

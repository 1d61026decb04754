"""Is what grows told from what comes and goes?"""

import math
import random
from collections.abc import Callable

import pytest

from benchmarks.soak.trend import TooShort, trend, trends

HOURS = [10.0 * number for number in range(720)]  # two of them
RSS = "PSS of process 1, MB"


def series(value: Callable[[float], float]) -> list[float]:
    rng = random.Random(1)
    return [value(at_s / 7200) + rng.uniform(-0.2, 0.2) for at_s in HOURS]


@pytest.mark.parametrize(
    ("value", "is_growing"),
    [
        (lambda part: 60.0, False),
        (lambda part: 60.0 + 5.0 * part, True),
        (lambda part: 60.0 - 5.0 * part, False),
        (lambda part: 60.0 + 1.0 * part, False),  # half a percent an hour is not seen
        (lambda part: 40.0 + 20.0 * min(1.0, part * 8), False),  # it warms up, and that was it
        (lambda part: 60.0 + 10.0 * math.exp(-20 * part), False),
        (lambda part: 60.0 + 3.0 * math.sin(40 * part), False),
        (lambda part: 60.0 + 10.0 * (part > 0.6), True),
        (lambda part: 60.0 + 10.0 * (0.95 < part < 0.952), False),  # a single peak
        (lambda part: 60.0 + 10.0 * part + 3.0 * math.sin(40 * part), True),
    ],
)
def test_what_is_higher_at_the_end_and_goes_up_until_then_grows(
    value: Callable[[float], float], *, is_growing: bool
) -> None:
    assert trend(RSS, HOURS, series(value)).is_growing == is_growing


def test_the_line_is_that_of_the_second_half() -> None:
    found = trend(RSS, [0.0, 1, 2, 3, 4, 5, 6, 7], [9.0, 9, 9, 9, 10, 12, 14, 16])
    assert (found.mean, found.growth, found.rise) == (13.0, 6.0, 7.0)
    assert found.kept()["growth over the second half"] == 6.0


def test_small_counts_may_change_by_a_few_however_small_they_are() -> None:
    few = [3.0] * 500 + [8.0] * 220
    assert not trend("keys in Redis", HOURS, few).is_growing
    assert trend("what nobody knows", HOURS, few).is_growing


def test_too_few_looks_are_no_verdict() -> None:
    with pytest.raises(TooShort, match="7 looks are too few"):
        trend(RSS, HOURS[:7], [1.0] * 7)


def test_each_series_that_all_looks_have_is_judged() -> None:
    looks = [{"a": float(number), "b": 1.0} for number in range(8)]
    looks[3]["c"] = 1.0
    assert [(each.name, each.is_growing) for each in trends(HOURS[:8], looks)] == [("a", True), ("b", False)]
    assert trends([], []) == []

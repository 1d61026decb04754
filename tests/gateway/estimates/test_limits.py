"""Does the limit come to where a worker is fastest, and stay there?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimates.limits import AdaptiveLimit
from tests.gateway.estimates.engine import measured_gap_s, run

BEST = 128 / measured_gap_s(128)


def at(start: int, most: int, **fields: Any) -> AdaptiveLimit:
    """One that has come to `start` before."""
    limit = AdaptiveLimit(most, **fields)
    limit.limit = start
    return limit


def ticked(limit: AdaptiveLimit, windows: list[tuple[int, float]], gaps: int = 100) -> list[int]:
    """windows: requests in flight, and seconds between tokens."""
    limit.tick(0.0, 0)
    limits = []
    for second, (in_flight, gap_s) in enumerate(windows, 1):
        for _ in range(gaps):
            limit.observe(gap_s, True)
        limits.append(limit.tick(second, in_flight))
    return limits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("noise", "prefilling"), [(0.0, 0.0), (0.1, 0.0), (0.3, 0.0), (0.3, 0.5)])
def test_the_worker_is_kept_where_its_tokens_a_second_are_most(
    noise: float, prefilling: float, seed: int
) -> None:
    limit = AdaptiveLimit(256)
    passed = run(limit, lambda second: 256, 400, noise=noise, prefilling=prefilling, seed=seed)[100:]
    assert sum(rate for _, rate in passed) / len(passed) > 0.9 * BEST
    assert min(streams for streams, _ in passed) > 64
    assert max(streams for streams, _ in passed) < 220


def test_bursts_with_quiet_between_them_find_it_too() -> None:
    passed = run(AdaptiveLimit(256), lambda second: 20 if second % 60 < 20 else 256, 600)[120:]
    busy = [rate for streams, rate in passed if streams > 64]
    assert sum(busy) / len(busy) > 0.9 * BEST


@pytest.mark.parametrize("per_stream_s", [28e-6, 100e-6])
def test_a_worker_that_more_streams_make_faster_gets_them_all(per_stream_s: float) -> None:
    limit = AdaptiveLimit(256)
    run(limit, lambda second: 256, 300, gap_s=lambda streams: 4.9e-3 + per_stream_s * streams, noise=0.1)
    assert limit.limit == 256


def test_a_limit_that_nobody_reaches_stays() -> None:
    limit = AdaptiveLimit(256)
    run(limit, lambda second: 30, 1000, noise=0.3, prefilling=0.3)
    assert limit.limit == 128


def test_a_worker_that_becomes_slow_altogether_keeps_its_streams() -> None:
    limit = AdaptiveLimit(64)
    run(limit, lambda second: 4 if second < 50 else 64, 100, gap_s=lambda streams: 5e-3 + 1e-5 * streams)
    run(limit, lambda second: 64, 200, gap_s=lambda streams: 30e-3 + 6e-5 * streams, began=100)
    assert limit.limit == 64


def test_gaps_are_let_grow_to_twice_those_at_low_load() -> None:
    def gap_s(streams: int) -> float:
        return 0.005 * max(1, streams / 128) ** 2  # past 128 more streams give less, slowly at first

    passed = run(
        AdaptiveLimit(256), lambda second: 20 if second < 20 else 256, 120, gap_s=gap_s, noise=0, tokens=50
    )
    assert 181 <= max(streams for streams, _ in passed) < 200


def test_a_worker_that_becomes_quicker_is_soon_known_for_it() -> None:
    limit = AdaptiveLimit(256)
    run(limit, lambda second: 20, 20, gap_s=lambda streams: 0.1)
    run(limit, lambda second: 20, 15, began=20)
    passed = run(limit, lambda second: 256, 200, began=35)[50:]
    assert max(streams for streams, _ in passed) < 220


def test_a_few_gaps_that_stall_do_not_hide_what_is_common_at_low_load() -> None:
    limit = AdaptiveLimit(256)
    limit.tick(0.0, 0)
    for second in range(1, 20):
        for number in range(100):
            limit.observe(1.0 if number < 20 else 0.005, True)
        limit.tick(second, 20)
    passed = run(limit, lambda second: 256, 200, began=20)[50:]
    assert max(streams for streams, _ in passed) < 220


def test_a_target_holds_whatever_makes_gaps_long() -> None:
    limit = AdaptiveLimit(256, target_s=0.008)
    passed = run(limit, lambda second: 256, 300, noise=0.05)[100:]
    assert all(80 <= streams <= 110 for streams, _ in passed)
    run(limit, lambda second: 256, 200, noise=0.05, prefilling=0.5, began=300)
    assert limit.limit == 8


def test_gaps_with_a_prompt_in_between_say_nothing_without_a_target() -> None:
    limit = AdaptiveLimit(16)
    limit.tick(0.0, 0)
    for second in range(1, 50):
        for _ in range(100):
            limit.observe(0.005 * 2**second, only_decoded=False)
        limit.tick(second, limit.limit)
    assert limit.limit == 16


def test_it_begins_at_128_or_at_a_lower_ceiling() -> None:
    assert [AdaptiveLimit(most).limit for most in (1, 8, 12, 256)] == [1, 8, 12, 128]


def test_it_rises_by_two_a_window_while_it_is_reached_and_never_above_the_ceiling() -> None:
    assert ticked(at(10, 20), [(10, 0.005), (11, 0.005), (12, 0.005)]) == [12, 14, 14]
    assert ticked(AdaptiveLimit(9), [(8, 0.005), (9, 0.005)]) == [9, 9]


def test_one_bad_window_is_chance_and_two_in_a_row_are_not() -> None:
    bad, good = (90, 0.02), (80, 0.005)
    assert ticked(at(100, 200, target_s=0.01), [bad, good, bad, bad, bad]) == [100, 100, 100, 81, 81]


def test_a_floor_at_the_ceiling_holds_the_limit_there_whatever_happens() -> None:
    limit = AdaptiveLimit(100, target_s=0.01, floor=100)
    assert limit.limit == 100
    assert ticked(limit, [(100, 1.0)] * 10) == [100] * 10
    assert ticked(AdaptiveLimit(100, target_s=0.01), [(50, 1.0)] * 10)[-1] < 50  # as it would, without


def test_the_limit_falls_from_what_was_in_flight_and_not_below_the_floor() -> None:
    slow = 0.02
    limit = at(100, 200, target_s=0.01)
    assert ticked(limit, [(40, slow), (40, slow), (9, slow), (8, slow)]) == [100, 36, 36, 8]
    assert ticked(AdaptiveLimit(4, target_s=0.01), [(2, slow)] * 4)[-1] == 4


def test_after_a_fall_nothing_is_judged_until_those_above_it_have_left() -> None:
    slow = 0.02
    windows = [(100, slow), (100, slow), (99, slow), (95, slow), (90, slow), (90, slow)]
    assert ticked(at(100, 200, target_s=0.01), windows) == [100, 90, 90, 90, 90, 81]


def test_a_window_with_few_gaps_tells_nothing() -> None:
    slow = [(85, 0.02)] * 2
    assert ticked(at(100, 200, target_s=0.01), slow, gaps=19) == [100, 100]
    assert ticked(at(100, 200, target_s=0.01), slow, gaps=20) == [100, 76]


def test_a_tick_that_comes_early_changes_nothing() -> None:
    limit = at(100, 200)
    limit.tick(10.0, 100)
    assert limit.tick(10.9, 100) == 100
    assert limit.tick(11.0, 100) == 102
    assert limit.tick(11.9, 102) == 102


def test_gaps_beyond_every_class_are_long() -> None:
    assert ticked(at(100, 200, target_s=5.0), [(90, 60.0)] * 2) == [100, 81]


def test_nine_of_ten_gaps_are_to_stay_below_the_target() -> None:
    def after(slow: int) -> int:
        limit = at(100, 200, target_s=0.01)
        limit.tick(0.0, 0)
        for second in (1, 2):
            for number in range(100):
                limit.observe(0.02 if number < slow else 0.005, True)
            limit.tick(second, 85)
        return limit.limit

    assert (after(9), after(11)) == (100, 76)


windows = st.lists(st.tuples(st.integers(0, 300), st.floats(1e-6, 100)), max_size=60)


@given(st.integers(1, 300), windows, st.sampled_from([None, 0.02]))
def test_whatever_happens_the_limit_stays_between_floor_and_ceiling(
    most: int, seen: list[tuple[int, float]], target_s: float | None
) -> None:
    assert all(min(8, most) <= one <= most for one in ticked(AdaptiveLimit(most, target_s), seen, gaps=25))

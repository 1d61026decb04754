"""Does the pace of the queue follow how long places are held, and how many there are?"""

import pytest

from gateway.estimates.pace import Pace


def ended(pace: Pace, times: int, held_s: float, work: float) -> None:
    for _ in range(times):
        pace.take()
        pace.give_back(held_s, work)


def test_before_anybody_has_ended_nothing_is_known() -> None:
    pace = Pace()
    pace.take()
    assert (pace.seconds_for(1000), pace.seconds_for_requests(10)) == (0, 0)


def test_one_place_comes_free_as_often_as_it_is_given_back() -> None:
    pace = Pace()
    ended(pace, 3, held_s=2.0, work=50)
    pace.take()
    assert pace.seconds_for(500) == pytest.approx(20.0)
    assert pace.seconds_for_requests(3) == pytest.approx(6.0)


def test_of_more_places_one_comes_free_more_often() -> None:
    pace = Pace()
    ended(pace, 3, held_s=2.0, work=50)
    for _ in range(4):
        pace.take()
    assert pace.seconds_for(500) == pytest.approx(5.0)
    assert pace.seconds_for_requests(3) == pytest.approx(1.5)


def test_places_that_are_free_count_too_if_they_are_known() -> None:
    pace = Pace()
    ended(pace, 3, held_s=2.0, work=50)
    pace.take()
    assert pace.seconds_for(500, places=10) == pytest.approx(2.0)
    assert pace.seconds_for_requests(10, places=10) == pytest.approx(2.0)


def test_with_no_place_in_use_one_is_reckoned_with() -> None:
    pace = Pace()
    ended(pace, 1, held_s=2.0, work=50)
    assert pace.seconds_for_requests(1) == pytest.approx(2.0)


def test_work_is_worth_what_the_average_request_took_for_its_own() -> None:
    pace = Pace()
    ended(pace, 1, held_s=1.0, work=10)
    ended(pace, 1, held_s=5.0, work=1010)
    pace.take()
    assert pace.seconds_for(1000) == pytest.approx(1000 * 6 / 1020, rel=0.02)


def test_a_place_given_back_with_nothing_done_tells_nothing() -> None:
    pace = Pace()
    ended(pace, 2, held_s=2.0, work=50)
    ended(pace, 50, held_s=0.001, work=0)
    assert pace.seconds_for_requests(1) == pytest.approx(2.0)


def test_a_change_is_learnt_within_some_dozens() -> None:
    pace = Pace()
    ended(pace, 200, held_s=1.0, work=50)
    ended(pace, 1, held_s=11.0, work=50)
    assert 1.1 < pace.seconds_for_requests(1) < 1.3
    ended(pace, 200, held_s=11.0, work=50)
    assert pace.seconds_for_requests(1) == pytest.approx(11.0, rel=0.02)

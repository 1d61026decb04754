"""Does what happens to requests tell who is fit for more, for how long, and how one comes back?"""

import pytest

from gateway.fleet.health import (
    AVOIDED,
    COLD,
    EJECTED,
    FORGIVEN_AFTER_S,
    MOST_EJECTION_S,
    WARM_UP_S,
    WELL,
    Health,
)


def fail(health: Health, now_s: float, *, spared: bool = True) -> float:
    return health.fail(now_s, most=3, ejection_s=10, can_be_spared=spared)


def ejected(now_s: float = 100.0) -> Health:
    health = Health()
    assert [fail(health, now_s) for _ in range(3)] == [0, 0, 10]
    return health


def test_failures_in_a_row_eject_for_a_while() -> None:
    health = ejected(100)
    assert [health.standing(at) for at in (100, 109.9, 110)] == [EJECTED, EJECTED, WELL]
    assert not health.is_sound


def test_what_it_had_from_before_counts_for_nothing_while_it_is_ejected() -> None:
    health = ejected(100)
    assert [fail(health, 105) for _ in range(5)] == [0] * 5
    assert health.standing(110) == WELL


def test_a_success_in_between_begins_the_count_anew() -> None:
    health = Health()
    for _ in range(5):
        fail(health, 100)
        fail(health, 100)
        health.succeed()
    assert health.is_sound


def test_one_request_is_its_trial() -> None:
    health = ejected(100)
    assert [health.is_on_trial(at) for at in (99, 109, 110)] == [False, False, True]
    health.is_tried = True
    assert health.standing(111) == EJECTED
    health.pass_trial()
    assert (health.standing(111), health.is_on_trial(111), health.is_sound) == (WELL, False, True)


def test_who_fails_its_trial_is_ejected_for_twice_as_long_up_to_a_bound() -> None:
    health, now_s, lengths = ejected(100), 100.0, []
    for _ in range(7):
        now_s = health.ejected_until
        health.is_tried = True
        lengths.append(fail(health, now_s))
        assert not health.is_tried
    assert lengths == [20, 40, 80, 160, MOST_EJECTION_S, MOST_EJECTION_S, MOST_EJECTION_S]


def test_after_its_trial_one_more_failure_ejects_it_until_a_request_has_ended_well() -> None:
    health = ejected(100)
    health.pass_trial()
    assert fail(health, 120) == 20
    health.pass_trial()
    health.succeed()
    assert [fail(health, 200) for _ in range(3)] == [0, 0, 40]


@pytest.mark.parametrize(("later_s", "length"), [(FORGIVEN_AFTER_S - 1, 20), (FORGIVEN_AFTER_S, 10)])
def test_after_a_long_good_time_an_ejection_is_short_again(later_s: float, length: float) -> None:
    health = ejected(100)
    health.pass_trial()
    health.succeed()
    health.tick(110 + later_s)  # it was ejected until 110
    assert [fail(health, 1000) for _ in range(3)] == [0, 0, length]


def test_nothing_is_forgiven_while_nothing_has_gone_well() -> None:
    health = ejected(100)
    health.pass_trial()
    health.tick(1000)
    assert fail(health, 1000) == 20


def test_who_cannot_be_spared_is_avoided_instead() -> None:
    health = Health()
    assert [fail(health, 100, spared=False) for _ in range(3)] == [0, 0, 0]
    assert [health.standing(at) for at in (100, 109.9, 110)] == [AVOIDED, AVOIDED, WELL]
    assert not health.is_on_trial(200)


def test_who_is_avoided_is_not_any_more_once_it_does_its_work() -> None:
    health = Health()
    for _ in range(3):
        fail(health, 100, spared=False)
    health.succeed()
    assert health.is_sound


def test_who_is_busy_is_avoided_until_then_and_the_later_word_counts() -> None:
    health = Health()
    health.avoid(105)
    health.avoid(102)
    assert [health.standing(at) for at in (104.9, 105)] == [AVOIDED, WELL]
    assert not health.is_sound
    health.tick(104)
    assert not health.is_sound
    health.tick(105)
    assert health.is_sound


def test_who_warms_up_has_its_limit_by_and_by() -> None:
    health = Health()
    assert health.part(0) == 1
    health.warm_up(100)
    assert health.part(100) == COLD
    assert health.part(100 + WARM_UP_S / 2) == pytest.approx((1 + COLD) / 2)
    assert health.part(100 + WARM_UP_S) == health.part(1000) == 1

"""Are times read as people write them, and shown so that they can be read?"""

import time

import click
import pytest

from gateway.commands.times import duration_s, moment, shown


@pytest.mark.parametrize(
    ("text", "seconds"), [("45m", 2700), ("12h", 43200), ("30d", 2592000), ("90s", 90), ("0s", 0)]
)
def test_a_length_of_time_is_a_number_and_its_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5h", "1 d", "1w", "1D", "\u0663d", "1d\n"])
def test_other_lengths_of_time_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="Write 30d, 12h, 45m or 30s"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-31", 1801353600),
        ("2027-01-31T12:00:00Z", 1801396800),
        ("2027-01-31 12:00:00+02:00", 1801389600),
    ],
)
def test_a_moment_is_a_date_which_begins_in_utc_or_a_time_with_its_zone(text: str, seconds: float) -> None:
    assert moment(text) == seconds


def test_a_moment_can_be_told_by_its_distance_from_now() -> None:
    before = int(time.time())
    at = moment("1h")

    assert before + 3600 <= at <= time.time() + 3600
    assert at == int(at)


@pytest.mark.parametrize("text", ["", "2027-01-31T12:00:00", "2027-02-30", "tomorrow", "1w"])
def test_other_moments_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"2027-01-31T12:00:00Z\."):
        moment(text)


def test_a_moment_is_shown_in_utc_to_the_second() -> None:
    assert shown(1801396800.9) == "2027-01-31T12:00:00Z"
    assert shown(None) == "never"

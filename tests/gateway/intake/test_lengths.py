"""Is the length of long prompts found where the work parts, and nowhere else?"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.intake.lengths import LEARN_EVERY, LEAST_TOKENS, MOST_TOKENS, Lengths

GIVEN = 30_000


def mixed(rng: random.Random) -> int:
    """The load of the routing benchmark."""
    return rng.randint(8_000, 24_000) if rng.random() < 0.1 else rng.randint(50, 800)


def learnt(draw: Callable[[random.Random], int], is_learning: bool = True) -> Lengths:
    found, rng = Lengths((), GIVEN, is_learning), random.Random(1)
    for _ in range(2 * LEARN_EVERY):
        found.note(draw(rng))
    return found


def test_edges_part_lengths_into_buckets() -> None:
    lengths = Lengths((1024, 8192), GIVEN)
    assert [lengths.bucket(tokens) for tokens in (1, 1023, 1024, 8191, 8192)] == [0, 0, 1, 1, 2]
    assert Lengths((), GIVEN).bucket(10**6) == 0


def test_long_are_those_of_the_given_length_and_more() -> None:
    lengths = Lengths((1024, 8192), 4096)
    assert [lengths.is_long(tokens) for tokens in (4095, 4096)] == [False, True]


def test_two_kinds_of_prompts_are_parted_between_them() -> None:
    assert LEAST_TOKENS <= learnt(mixed).long_from <= 8_000


def test_what_is_given_stays_unless_it_is_to_be_learnt() -> None:
    assert learnt(mixed, is_learning=False).long_from == GIVEN


def test_nothing_is_learnt_from_a_few() -> None:
    lengths = Lengths((), GIVEN, is_learning=True)
    for _ in range(LEARN_EVERY - 1):
        lengths.note(100)
    assert lengths.long_from == GIVEN
    lengths.note(100)
    assert lengths.long_from < GIVEN


def test_prompts_that_are_read_in_no_time_are_not_long_whatever_they_are_beside() -> None:
    assert learnt(lambda rng: rng.choice((20, 400))).long_from == LEAST_TOKENS


def test_a_change_of_what_comes_is_followed() -> None:
    lengths = learnt(mixed)
    for _ in range(8):
        for number in range(LEARN_EVERY):
            lengths.note(60_000 if number % 10 == 0 else 5_000)
    assert 5_000 < lengths.long_from <= MOST_TOKENS


@pytest.mark.parametrize("tokens", [0, -1])
def test_what_is_no_length_is_passed_over(tokens: int) -> None:
    lengths = Lengths((), GIVEN, is_learning=True)
    lengths.note(tokens)
    assert lengths._seen == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=20))
def test_whatever_comes_it_stays_within_its_bounds(found: list[int]) -> None:
    lengths = Lengths((), GIVEN, is_learning=True)
    for number in range(LEARN_EVERY):
        lengths.note(found[number % len(found)])
    assert LEAST_TOKENS <= lengths.long_from <= MOST_TOKENS

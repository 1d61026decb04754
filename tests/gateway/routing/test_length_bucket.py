"""Does a request go where least is to be done, and are some workers kept clear of long prompts?"""

from math import inf

import pytest

from gateway.model import Worker
from gateway.routing.length_bucket import SPILL_S, length_bucket
from tests.gateway.test_model import job, worker

JUST_BEFORE_S = SPILL_S * (1 - 1e-9)


def ranked(workers: list[Worker], is_long: bool = False, turn: int = 0, waited_s: float = 0.0) -> list[str]:
    return [of.id for of in length_bucket(job(is_long=is_long), workers, turn, waited_s)]


def fleet(clear: int, of: int) -> list[Worker]:
    """So many workers, of which some have no long prompt; those are the busiest."""
    return [worker(f"clear{n}", 9, prefill_s=9.0) for n in range(clear)] + [
        worker(f"long{n}", long_prefills=1) for n in range(of - clear)
    ]


# Least work


@pytest.mark.parametrize("is_long", [False, True])
def test_the_worker_with_the_least_seconds_comes_first(is_long: bool) -> None:
    workers = [
        worker("reads", 1, prefill_s=0.5),
        worker("new", 1, prefill_s=0.125, own_s=0.125),
        worker("decodes", 9, decode_s=0.375),
        worker("cached", 1, prefill_s=0.125),
    ]
    assert ranked(workers, is_long) == ["cached", "new", "decodes", "reads"]


@pytest.mark.parametrize("is_long", [False, True])
def test_a_cached_prompt_wins_unless_its_worker_is_busier_by_more(is_long: bool) -> None:
    new = worker("new", own_s=0.5)
    assert ranked([new, worker("cached", prefill_s=0.25)], is_long)[0] == "cached"
    assert ranked([new, worker("cached", prefill_s=0.75)], is_long)[0] == "new"


@pytest.mark.parametrize("is_long", [False, True])
def test_equals_take_turns(is_long: bool) -> None:
    workers = [worker(id) for id in "abc"]
    assert [ranked(workers, is_long, turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


# Kept clear


@pytest.mark.parametrize(("kept", "of"), [(1, 3), (1, 4), (1, 7), (2, 8), (2, 11), (3, 12)])
def test_the_last_part_that_is_clear_of_long_prompts_gets_no_other(kept: int, of: int) -> None:
    assert ranked(fleet(kept, of), is_long=True) == []
    assert len(ranked(fleet(kept + 1, of), is_long=True)) == of


def test_a_long_prompt_waits_even_for_workers_that_are_all_reading_long_ones() -> None:
    assert ranked(fleet(0, 3), is_long=True) == []


@pytest.mark.parametrize("clear", [0, 1, 3])
def test_a_short_prompt_has_the_choice_of_all_at_once(clear: int) -> None:
    assert len(ranked(fleet(clear, 3))) == 3


@pytest.mark.parametrize(("waited_s", "among"), [(JUST_BEFORE_S, 0), (SPILL_S, 4), (inf, 4)])
def test_a_long_prompt_that_has_waited_long_enough_has_the_choice_of_all(waited_s: float, among: int) -> None:
    assert len(ranked(fleet(1, 4), is_long=True, waited_s=waited_s)) == among


@pytest.mark.parametrize("clear", [0, 1, 2])
def test_of_two_workers_none_is_kept_clear(clear: int) -> None:
    assert len(ranked(fleet(clear, 2), is_long=True)) == 2


def test_a_worker_alone_gets_all() -> None:
    assert ranked([worker("w0", long_prefills=1)], is_long=True) == ["w0"]

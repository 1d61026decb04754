"""Does a request go where its first token would come soonest?"""

from typing import Any

import pytest

from gateway.model import Worker
from gateway.routing.least_work import least_work, seconds
from tests.gateway.test_model import job, worker


def ranked(*workers: Worker, turn: int = 0) -> list[str]:
    return [of.id for of in least_work(job(), workers, turn, 0.0)]


def test_all_that_a_worker_would_have_to_do_counts_alike() -> None:
    assert seconds(worker("a", prefill_s=0.5, own_s=0.25, decode_s=0.125)) == 0.875
    assert seconds(worker("idle")) == 0.0


@pytest.mark.parametrize("what", ["prefill_s", "decode_s", "own_s"])
def test_the_least_work_comes_first(what: str) -> None:
    taken_s: dict[str, Any] = {"c": 0.3, "a": 0.1, "b": 0.2}
    workers = [worker(id, **{what: of}) for id, of in taken_s.items()]
    assert ranked(*workers) == ["a", "b", "c"]


def test_how_many_requests_there_are_is_no_matter() -> None:
    assert ranked(worker("one long", 1, prefill_s=2.0), worker("many short", 9, prefill_s=0.1)) == [
        "many short",
        "one long",
    ]


def test_a_worker_that_has_the_prompt_cached_wins_unless_it_is_busier_by_more_than_that_saves() -> None:
    new = worker("new", own_s=0.5)
    assert ranked(new, worker("cached", prefill_s=0.25, own_s=0.125))[0] == "cached"
    assert ranked(new, worker("cached", prefill_s=0.5, own_s=0.125))[0] == "new"


def test_equals_take_turns() -> None:
    workers = [worker(id) for id in "abc"]
    assert [ranked(*workers, turn=turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]

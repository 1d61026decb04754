"""Does a request go only to workers that are long enough, where they differ, and to any where they do not?"""

import pytest

from gateway.errors import NoWorker
from gateway.fleet.contexts import Contexts
from gateway.model import Job
from tests.gateway.fleet.workers import Workers
from tests.gateway.test_model import job


def uneven(*ids: str) -> Workers:
    """The first is short, the second long, the others have told nothing."""
    of = Workers(*ids)
    of.fleet.contexts.note("w0", {"small": 4_000})
    of.fleet.contexts.note("w1", {"small": 32_000})
    return of


def needs(tokens: int) -> Job:
    return job(context_tokens=tokens)


def found(of: Workers, tokens: int) -> list[str]:
    return [worker.id for worker in of.fleet.workers(needs(tokens))]


@pytest.mark.parametrize(
    ("tokens", "ids"),
    [
        (0, ["w0", "w1", "w2"]),
        (4_000, ["w0", "w1", "w2"]),
        (4_001, ["w1", "w2"]),
        (32_000, ["w1", "w2"]),
        (99_000, ["w1", "w2"]),  # which say that it is too long
    ],
)
def test_a_request_goes_to_the_workers_that_are_long_enough(tokens: int, ids: list[str]) -> None:
    of = uneven("w0", "w1", "w2")
    assert found(of, tokens) == ids
    assert of.fleet.is_confined(needs(tokens)) is (len(ids) < 3)


def test_workers_of_one_length_take_all() -> None:
    of = uneven("w0", "w1")
    of.fleet.contexts.note("w1", {"small": 4_000})
    assert found(of, 9_000) == ["w0", "w1"]
    assert not of.fleet.is_confined(needs(9_000))


def test_the_lengths_of_other_models_say_nothing() -> None:
    contexts = Contexts()
    contexts.note("w0", {"small": 4_000, "large": 8_000})
    contexts.note("w1", {"small": 4_000, "other": 9_000})
    assert contexts.least(needs(9_000)) == 0
    assert contexts.least(job(model="large", context_tokens=9_000)) == 0


def test_where_only_short_ones_are_up_it_is_said() -> None:
    of = uneven("w0", "w1")
    of["w1"].up = False
    assert found(of, 4_000) == ["w0"]
    with pytest.raises(NoWorker, match="up for this model with prompts of this length"):
        of.fleet.workers(needs(4_001))


def test_a_long_one_that_was_tried_leaves_nobody() -> None:
    assert uneven("w0", "w1").fleet.workers(needs(9_000), without=["w1"]) == []

"""Does the checker see an answer that is not the worker's, and a failure that is not told as one?"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.chaos.answers import complete, not_invented, not_repeated, typed
from benchmarks.chaos.evidence import Evidence
from tests.benchmarks.chaos.told import ERROR, TEXT, WISH, call, found, line, mishap, plain, refused, visit

KILL = [mishap("gateway process killed", "0", 10.5, 10.5)]
LATE = {"status": 200, "error": {**ERROR, "message": "It failed (request id c1)"}}


@pytest.mark.parametrize("rule", [complete, not_invented, not_repeated, typed])
@pytest.mark.parametrize("good", [call(), plain(), call(by="sdk", done=False), refused(), refused(**LATE)])
def test_nothing_speaks_against_a_good_answer(rule: Callable[[Evidence], Iterator[str]], good: Any) -> None:
    assert list(rule(found(calls=[good]))) == []


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (call(text=TEXT[:-1]), "it said"),
        (call(text=TEXT + TEXT), "it said"),
        (call(finish_reason="content_filter"), "it said"),
        (call(usages=0), "usage was told 0 times"),
        (call(usages=2), "usage was told 2 times"),
        (plain(body=b"{}"), "not the worker's"),
        (refused(status=200, text="x"), "is not how"),
    ],
)
def test_an_answer_that_is_not_the_worker_s_is_seen(bad: Any, says: str) -> None:
    [text] = complete(found(calls=[bad]))
    assert says in text
    assert text.startswith("c1 (raw, open, replica 0")


@pytest.mark.parametrize("visits", [[], [visit(how="left")], [visit(), visit(worker="w1")]])
def test_an_end_that_not_one_worker_said_is_seen(visits: Any) -> None:
    assert len(list(not_invented(found(visits=visits)))) == 1


def test_what_a_worker_said_to_an_attempt_whose_answer_was_lost_is_not_counted() -> None:
    again = call(by="sdk", attempts=["c0", "c1"])
    assert list(not_invented(found(calls=[again], visits=[visit(request_id="c0"), visit()]))) == []
    assert len(list(not_invented(found(calls=[again], visits=[visit(request_id="c0")])))) == 1


def test_an_end_in_a_stream_that_failed_later_is_one_too() -> None:
    odd = refused(**LATE, finish_reason="stop")
    assert len(list(not_invented(found(calls=[odd], visits=[visit(how="breaks")])))) == 1


def test_what_a_worker_refused_may_go_to_another_and_nothing_else() -> None:
    second = visit(worker="w1", came_at=10.15)
    for before, count in [
        (visit(manner="busy", how="busy", tokens=0, first_at=None), 0),
        (visit(manner="ending", how="ending", tokens=0, first_at=None), 0),
        (visit(how="left", tokens=0, ended_at=10.12), 0),  # the connection was closing as it came
        (visit(how="left", tokens=0, ended_at=12.0), 1),
        (visit(how="left", tokens=1, ended_at=10.12), 1),
        (visit(how="", tokens=0, ended_at=None), 1),
        (visit(manner="fails", how="fails", tokens=0, first_at=None), 1),
    ]:
        assert len(list(not_repeated(found(visits=[before, second])))) == count


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (refused(error=None), "no error object"),
        (refused(error={**ERROR, "code": 503}), "no proper error object"),
        (refused(status=500), "was due"),
        (refused(status=400), "was due"),
        (refused(answered_id="another"), "the answer is of 'another'"),
        (refused(**{**LATE, "error": ERROR}), "does not tell the id"),
        (call(done=False, finish_reason=None), "no error object"),
        (call(done=False, broke="ConnectionResetError()"), "ConnectionResetError"),
        (call(done=False, broke="gave up"), "never ended"),
        (call(by="no key", wish=replace(WISH, stream=False), expected=401), "it was served"),
        (refused(by="no key", status=404, expected=401), "was due"),
    ],
)
def test_a_failure_that_is_not_told_as_one_is_seen(bad: Any, says: str) -> None:
    [text] = typed(found(calls=[bad]))
    assert says in text


@pytest.mark.parametrize(
    ("broken", "more"),
    [
        (call(done=False, broke="ConnectionResetError()"), {"mishaps": KILL}),
        (
            refused(status=0, error=None, broke="refused"),
            {"mishaps": [mishap("replica restarted", "0", 9.0, 12.0)]},
        ),
        (plain(done=False, broke="it ended early"), {"lines": [line(outcome="worker_failed")]}),
        (call(done=False, finish_reason=None), {"visits": [visit(manner="unended", how="unended")]}),
        (call(done=False, broke="left"), {}),
        (refused(by="no key", status=401, expected=401), {}),
        (refused(by="no key", expected=401), {}),
    ],
)
def test_what_was_not_the_gateway_s_to_tell_is_excused(broken: Any, more: dict[str, Any]) -> None:
    assert list(typed(found(calls=[broken], **more))) == []


@pytest.mark.parametrize(
    "mishaps",
    [
        [mishap("gateway process killed", "1", 10.5, 10.5)],
        [mishap("gateway process killed", "0", 3.0, 3.0)],
        [mishap("replica restarted", "0", 9.0, 12.0)],  # which tells those under way
    ],
)
def test_others_misfortunes_excuse_nothing(mishaps: Any) -> None:
    broken = call(done=False, broke="ConnectionResetError()")
    assert len(list(typed(found(calls=[broken], mishaps=mishaps)))) == 1

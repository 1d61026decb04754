"""Does the checker see what was not given back, and what went on too long?"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.leftovers import bugs, departures, drained, endings, gauges, leases, lines, usage
from benchmarks.chaos.report import RULES
from tests.benchmarks.chaos.told import USED, WISH, call, found, line, mishap, refused, visit

KILL = mishap("gateway process killed", "0", 11.5, 11.5)
USAGE = found().usage


@pytest.mark.parametrize("rule", RULES.values())
def test_nothing_speaks_against_a_run_without_faults(rule: Callable[[Evidence], Iterator[str]]) -> None:
    assert list(rule(found())) == []


def test_what_is_left_is_seen() -> None:
    assert list(leases(found(leases=2))) == ["2 leases are left in Redis"]
    assert list(gauges(found(gauges={"gateway_queue_depth of replica 1": 3.0}))) == [
        "gateway_queue_depth of replica 1 is 3"
    ]
    assert len(list(gauges(found(gauges={"gateway_in_flight of replica 1": float("nan")})))) == 1


@pytest.mark.parametrize(
    ("until", "mishaps", "is_late"),
    [
        (13.9, [], False),
        (14.1, [], True),
        (None, [], True),
        (None, [mishap("worker killed", "w0", 12.0, 13.0)], False),
        (None, [mishap("worker killed", "w1", 12.0, 13.0)], True),
        (15.0, [mishap("worker stopped", "w0", 10.5, 13.0)], False),
        (15.0, [mishap("worker stopped", "w1", 10.5, 13.0)], True),
        (15.0, [mishap("stall", "w0", 11.0, 12.5)], False),
        (15.0, [mishap("latency", "w0", 11.0, 12.5)], True),
    ],
)
def test_work_for_a_caller_who_is_gone_is_seen(until: float | None, mishaps: Any, *, is_late: bool) -> None:
    gone = [call(broke="left")]
    odd = found(calls=gone, visits=[visit(ended_at=until, how="left" if until else "")], mishaps=mishaps)
    assert bool(list(departures(odd))) == is_late


@pytest.mark.parametrize(
    ("of_redis", "more", "is_wrong"),
    [
        ((1, USED), {}, False),
        ((0, USED), {}, True),
        ((1, USED - 1), {}, True),
        ((1, USED + 1), {}, True),
        ((0, 0), {"mishaps": [KILL]}, False),  # it had not told of it yet
        ((0, 0), {"mishaps": [replace(KILL, whom="1")]}, True),
        ((0, 0), {"mishaps": [replace(KILL, at=20.0, until=20.0)]}, True),
        (
            (0, 0),
            {"mishaps": [mishap("redis frozen", "redis", 10.0, 18.0), replace(KILL, at=20.0, until=20.0)]},
            False,
        ),
        ((1, USED), {"lines": [], "mishaps": [KILL]}, False),  # the log had not been written yet
        ((1, USED), {"lines": []}, True),
        ((3, USED), {"lines": [], "mishaps": [KILL]}, True),
        ((1, USED + 100), {"lines": [], "mishaps": [KILL]}, True),
    ],
)
def test_usage_that_is_not_that_of_the_log_is_seen(
    of_redis: Any, more: dict[str, Any], *, is_wrong: bool
) -> None:
    assert bool(list(usage(found(usage={**USAGE, "open": of_redis}, **more)))) == is_wrong


def test_what_is_not_in_the_log_or_twice_is_seen() -> None:
    assert list(lines(found(lines=[line(), line()]))) == ["c1 is in the log 2 times"]
    assert len(list(lines(found(lines=[])))) == 1
    assert list(lines(found(lines=[], mishaps=[KILL]))) == []
    unheard = refused(status=0, error=None, broke="refused: no")
    assert list(lines(found(calls=[unheard], visits=[], lines=[]))) == []


@pytest.mark.parametrize(
    ("came_at", "mishaps", "is_wrong"),
    [
        (5.0, [mishap("worker drained", "w0", 2.0, 8.0, "status 200")], True),
        (3.0, [mishap("worker drained", "w0", 2.0, 8.0, "status 200")], False),
        (9.0, [mishap("worker drained", "w0", 2.0, 8.0, "status 200")], False),
        (5.0, [mishap("worker drained", "w1", 2.0, 8.0, "status 200")], False),
        (5.0, [mishap("worker drained", "w0", 2.0, 8.0, "status 503")], False),
        (
            5.0,
            [
                mishap("worker drained", "w0", 2.0, 8.0, "status 200"),
                mishap("redis frozen", "redis", 3.0, 4.0),
            ],
            False,
        ),
    ],
)
def test_a_request_at_a_drained_worker_is_seen(came_at: float, mishaps: Any, *, is_wrong: bool) -> None:
    assert bool(list(drained(found(visits=[visit(came_at=came_at)], mishaps=mishaps)))) == is_wrong


def test_a_bad_end_is_seen() -> None:
    restarts = [mishap("replica restarted", "1", 1.0, 5.0, f"exit status {status}") for status in (0, 1)]
    probe = refused(wish=replace(WISH, id="p0-0"))
    assert list(endings(found(mishaps=restarts, statuses=[0, 1], calls=[call(), probe]))) == [
        "replica 1 was restarted: exit status 1",
        "replica 1 ended with status 1",
        "p0-0 (raw, open, replica 0, stream): 503 draining, when all was well again",
    ]


def test_a_bug_is_seen() -> None:
    said = """2026-11-30 10:00:00,1 ERROR it failed
  + Exception Group Traceback (most recent call last):
  | ExceptionGroup: of tasks
    | Traceback (most recent call last):
    | ValueError: no
    +------------------------------------
2026-11-30 10:00:01,1 INFO well again
"""
    internal, traced = bugs(found(lines=[line(outcome="internal_error")], said=said))
    assert internal == "c1: internal_error"
    assert traced == "2026-11-30 10:00:00,1 ERROR it failed … ValueError: no"

"""Is what callers saw of a frozen Redis judged as it should be?"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.outage import freeze
from benchmarks.outage.caller import REMAINING, Answer
from benchmarks.outage.freeze import Course, Plan
from benchmarks.targets import Row
from deploy.services import ServiceFailed

PLAN = Plan(before_s=10, freeze_s=30, limited_per_minute=60, streams=2)


def answer(begun_s: float, took_s: float = 0.01, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(begun_s, begun_s + took_s, status, named, is_whole=True)


def of_limited(begun_s: float, remaining: int | None = None, status: int = 200) -> Answer:
    headers = {} if remaining is None else {REMAINING: str(remaining)}
    return replace(answer(begun_s, 0.0, status), headers=headers)


COURSE = Course(
    frozen_s=100.0,
    thawed_s=130.0,
    recovered_s=130.5,
    ample=[
        answer(80.0, 5.0),  # warm-up
        answer(95.0, 0.1),
        answer(99.9, 0.35, x_gateway_degraded="local"),  # struck by the freeze
        answer(110.0, 0.02, x_gateway_degraded="local"),
        answer(131.0, 0.9),
    ],
    limited=[
        of_limited(90.0, 9),
        of_limited(99.0, 0),
        of_limited(99.5, 0, status=429),
        *(of_limited(100.0 + number, 0) for number in range(24)),
        of_limited(131.0, 7),
        of_limited(135.0, 3),
    ],
    streams=[answer(90.0, 50.0), answer(90.0, 50.0)],
)


def by_name(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def judged(course: Course, leases: int = 0, log_lines: int = 12) -> dict[str, Row]:
    return by_name(freeze.rows(PLAN, course, leases, log_lines))


def missed(found: dict[str, Row]) -> list[str]:
    return [name for name, row in found.items() if row.met is False]


def test_a_freeze_that_hardly_anybody_notices_meets_every_target() -> None:
    found = judged(COURSE)
    assert missed(found) == []
    values = {name: round(row.value, 6) for name, row in found.items()}
    assert values == {
        "longest request before": 100,
        "longest request in the freeze": 350,
        "longer by": 250,
        "ample tenant in the freeze, answered 200": 2,
        "of these by each process's own limits": 2,
        "ample tenant, answered otherwise at any time": 0,
        "limited tenant, left before the freeze": 0,
        "limited tenant, granted in the freeze": 24,
        "limited tenant, left after the recovery": 7,
        "limited tenant, granted from the freeze on": 26,
        "limited tenant, neither granted nor 429": 0,
        "streams across the freeze, whole": 2,
        "from the thaw to no process degraded": 0.5,
        "leases left in Redis": 0,
        "log lines about Redis, per process": 6,
    }
    targets = {name: row.target for name, row in found.items() if row.target}
    assert targets == {
        "longer by": "≤ 300 ms",
        "of these by each process's own limits": "≥ 1",
        "ample tenant, answered otherwise at any time": "≤ 0",
        "limited tenant, granted in the freeze": "≥ 1, ≤ 26.8",  # 0.8 of 31, and one a process
        "limited tenant, left after the recovery": "≤ 8",  # 31 since the freeze + 1, without those 24
        "limited tenant, granted from the freeze on": "≤ 36",
        "limited tenant, neither granted nor 429": "≤ 0",
        "streams across the freeze, whole": "= 2",
        "from the thaw to no process degraded": "≤ 5 s",
        "leases left in Redis": "≤ 0",
        "log lines about Redis, per process": "≤ 9",
    }


@pytest.mark.parametrize(
    ("course", "row"),
    [
        (replace(COURSE, ample=[*COURSE.ample, answer(129.9, 0.5)]), "longer by"),
        (replace(COURSE, ample=[*COURSE.ample, answer(99.0, 1.41)]), "longer by"),
        (
            replace(COURSE, ample=[answer(95.0), answer(110.0)]),
            "of these by each process's own limits",
        ),
        (
            replace(COURSE, ample=[*COURSE.ample, answer(132.0, 0.01, 503)]),
            "ample tenant, answered otherwise at any time",
        ),
        (
            replace(COURSE, limited=[*COURSE.limited, *[of_limited(111.0)] * 3]),
            "limited tenant, granted in the freeze",
        ),
        (
            replace(COURSE, limited=[*COURSE.limited, of_limited(130.9, 9)]),
            "limited tenant, left after the recovery",
        ),
        (
            replace(COURSE, limited=[*COURSE.limited, *[of_limited(134.0, 0)] * 11]),
            "limited tenant, granted from the freeze on",
        ),
        (
            replace(COURSE, limited=[*COURSE.limited, of_limited(110.0, status=500)]),
            "limited tenant, neither granted nor 429",
        ),
        (
            replace(COURSE, streams=[COURSE.streams[0], replace(COURSE.streams[1], is_whole=False)]),
            "streams across the freeze, whole",
        ),
        (
            replace(COURSE, recovered_s=135.1, limited=[*COURSE.limited, of_limited(136.0, 3)]),
            "from the thaw to no process degraded",
        ),
    ],
)
def test_each_miss_is_seen(course: Course, row: str) -> None:
    assert row in missed(judged(course))


def test_a_tenant_that_is_granted_nothing_is_a_miss_too() -> None:
    refused = [replace(each, status=429) for each in COURSE.limited]
    assert missed(judged(replace(COURSE, limited=refused))) == ["limited tenant, granted in the freeze"]


def test_what_is_left_behind_is_a_miss() -> None:
    found = judged(COURSE, leases=1, log_lines=20)
    assert missed(found) == ["leases left in Redis", "log lines about Redis, per process"]


def test_without_an_answer_that_tells_the_limit_nothing_is_measured() -> None:
    silent = [replace(each, headers={}) for each in COURSE.limited]
    with pytest.raises(ServiceFailed, match="what is left"):
        judged(replace(COURSE, limited=silent))

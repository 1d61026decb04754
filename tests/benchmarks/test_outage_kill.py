"""Is what others saw of a killed gateway judged as it should be?"""

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.outage import kill
from benchmarks.outage.caller import Answer
from benchmarks.outage.kill import KEPT, LOST, OTHER, Plan
from benchmarks.outage.visits import Change, Visits
from benchmarks.targets import Row

KILLED_S = 100.0
STREAM = Answer(98.0, 198.0, 200, {}, is_whole=True)
STATUSES = Counter({429: 40, 200: 2})
GOOD = [
    (98.0, LOST, 1), (98.0, LOST, 1), (98.0, KEPT, 1), (100.1, LOST, -1), (100.1, LOST, -1),
    (129.0, OTHER, 1), (130.0, OTHER, 1), (131.0, OTHER, -1), (132.0, OTHER, -1), (198.0, KEPT, -1),
]  # fmt: skip


def judged(
    changes: list[tuple[float, str, int]] = GOOD, stream: Answer = STREAM, statuses: Counter[int] = STATUSES
) -> dict[str, Row]:
    visits = Visits()
    visits.changes = [Change(*change) for change in sorted(changes, key=lambda change: change[0])]
    return {row.name: row for row in kill.rows(Plan(), visits, KILLED_S, stream, statuses)}


def missed(found: dict[str, Row]) -> list[str]:
    return [name for name, row in found.items() if row.met is False]


def test_slots_that_are_free_in_time_and_a_stream_that_keeps_its_own_meet_every_target() -> None:
    found = judged()
    assert missed(found) == []
    assert {name: (row.value, row.target) for name, row in found.items()} == {
        "from the kill to the first other granted": (29, "≤ 35 s"),
        "from the kill to both slots in use": (30, "≤ 35 s"),
        "most at the worker at once": (3, "= 3"),
        "most others beside the stream that is kept": (2, "≤ 2"),
        "stream of 100 s, whole": (1, "= 1"),
        "others refused": (40, "≥ 1"),
        "others granted": (2, ""),
        "others answered neither 200 nor 429": (0, "≤ 0"),
    }


def test_a_slot_that_stays_taken_is_a_miss() -> None:
    one = [change for change in GOOD if change[0] not in (130.0, 132.0)]
    assert missed(judged(one)) == ["from the kill to both slots in use"]
    none = [change for change in one if change[1] != OTHER]
    found = judged(none)
    assert missed(found) == ["from the kill to the first other granted", "from the kill to both slots in use"]
    assert found["from the kill to both slots in use"].value == 98  # as long as it was watched


def test_a_stream_whose_slot_others_get_is_a_miss() -> None:
    third = [(130.5, OTHER, 1), (130.6, OTHER, -1)]
    assert missed(judged([*GOOD, *third])) == [
        "most at the worker at once",
        "most others beside the stream that is kept",
    ]


def test_more_than_the_slots_is_a_miss_even_without_that_stream() -> None:
    crowd = [(199.0 + number, OTHER, 1) for number in range(4)]
    assert missed(judged([*GOOD, *crowd])) == ["most at the worker at once"]


@pytest.mark.parametrize(
    ("stream", "statuses", "row"),
    [
        (replace(STREAM, is_whole=False), STATUSES, "stream of 100 s, whole"),
        (STREAM, Counter({200: 5}), "others refused"),
        (STREAM, Counter({200: 5, 429: 1, 503: 1}), "others answered neither 200 nor 429"),
        (STREAM, Counter({200: 5, 429: 1, 0: 1}), "others answered neither 200 nor 429"),
    ],
)
def test_each_other_miss_is_seen(stream: Answer, statuses: Counter[int], row: str) -> None:
    assert missed(judged(stream=stream, statuses=statuses)) == [row]


def test_the_stream_outlasts_a_lease_that_nobody_renews() -> None:
    plan = Plan()
    assert plan.duration_s > plan.lease_ttl_s + kill.SPARE_S + plan.before_s

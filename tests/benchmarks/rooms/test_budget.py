"""Do the rooms and the rest come to the whole?"""

import io

import pytest
from rich.console import Console

from benchmarks.rooms import budget
from benchmarks.rooms.budget import Line
from tests.benchmarks.rooms.made import LONGEST, times


def budgets(found: list[Line]) -> dict[str, list[Line]]:
    return {title: [line for line in found if line.budget == title] for title in {of.budget for of in found}}


def test_the_rest_is_what_the_rooms_leave_of_the_whole() -> None:
    found = {line.name: line.us for line in budget.lines(times())}

    assert found[budget.WAIT] == 0.5  # the task itself is in the caller's connection
    assert found[budget.PLAIN_REST] == 20 - len(budget.PLAIN) - 0.5
    assert found[budget.CHUNK_REST] == pytest.approx(4 - 1 - 1)


def test_parts_of_a_room_are_in_no_sum() -> None:
    for title, rows in budgets(budget.lines(times())).items():
        *parts, whole = [row for row in rows if not row.within]
        assert whole.share == 1.0
        if "rest" in parts[-1].name:
            assert sum(row.us for row in parts) == pytest.approx(whole.us), title
            assert sum(row.share for row in parts) == pytest.approx(1.0), title


def test_a_part_stands_below_its_room() -> None:
    rows = budget.lines(times())
    below = {part for parts in budget.WITHIN_PLAIN.values() for part in parts}

    assert not rows[0].within
    assert below <= {row.name for row in rows if row.within}


def test_rooms_that_take_more_alone_than_in_the_whole_leave_less_than_nothing() -> None:
    found = {line.name: line for line in budget.lines(times(whole_plain=10.0, intake=5.0))}

    assert found[budget.PLAIN_REST].us < 0
    assert found[budget.PLAIN_REST].share < 0


def test_the_beginning_of_a_stream_is_shared_out_among_its_chunks() -> None:
    found = {line.name: line.us for line in budget.lines(times(**{"whole_stream[0]": 128.0, LONGEST: 640.0}))}

    assert found["begin and end the stream: its share"] == 2.0


@pytest.mark.parametrize("name", sorted(times()))
def test_every_benchmark_is_needed(name: str) -> None:
    made = times()
    del made[name]

    with pytest.raises(KeyError, match=name.partition("[")[0]):
        budget.lines(made)


def test_people_get_a_table_for_each_budget() -> None:
    console = Console(file=io.StringIO(), width=120)
    found = budget.lines(times())
    shown = list(budget.tables(found))
    for table in shown:
        console.print(table)

    assert len(shown) == len(budgets(found)) == 3
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a streamed chunk, one of 64" in text
    assert "… look at the event" in text
    assert "20.00 │  100%" in text

"""Do visits tell who was at the worker at once, and when?"""

import asyncio

import pytest

from benchmarks.outage.visits import Change, Visits


def visits(*changes: tuple[float, str, int]) -> Visits:
    made = Visits()
    made.changes = [Change(*change) for change in changes]
    return made


COURSE = visits(
    (1.0, "kept", 1), (2.0, "other", 1), (3.0, "other", 1), (4.0, "other", -1),
    (5.0, "kept", -1), (6.0, "other", 1), (7.0, "other", 1), (8.0, "other", 1),
)  # fmt: skip


def test_the_most_at_once_are_counted_over_all_tags() -> None:
    assert COURSE.most() == 4
    assert visits((1.0, "a", 1), (2.0, "b", 1), (3.0, "a", -1), (4.0, "a", 1)).most() == 2
    assert visits().most() == 0


def test_those_beside_another_count_only_while_it_is_there() -> None:
    assert COURSE.most_beside("other", "kept") == 2
    assert COURSE.most_beside("kept", "other") == 1
    assert COURSE.most_beside("other", "nobody") == 0


@pytest.mark.parametrize(
    ("count", "since_s", "after_s"),
    [(1, 0.5, 1.5), (2, 0.5, 2.5), (2, 4.0, 2.0), (3, 0.0, 7.0), (5, 0.0, None)],
)
def test_a_crowd_is_found_from_a_moment_on(count: int, since_s: float, after_s: float | None) -> None:
    assert COURSE.reached_s("other", count, since_s) == after_s


def test_only_those_that_came_count_as_begun() -> None:
    assert (COURSE.begun("kept"), COURSE.begun("other"), COURSE.begun("nobody")) == (1, 5, 0)


def test_a_visit_lasts_as_long_as_its_block_however_that_ends() -> None:
    made = Visits()
    with made.visit("a"):
        assert [(change.tag, change.by) for change in made.changes] == [("a", 1)]
    with pytest.raises(KeyError), made.visit("b"):
        raise KeyError
    assert [(change.tag, change.by) for change in made.changes] == [("a", 1), ("a", -1), ("b", 1), ("b", -1)]
    assert made.changes[0].at_s <= made.changes[1].at_s


async def test_somebody_who_waits_is_told_when_enough_have_come() -> None:
    made = Visits()
    waiting = asyncio.create_task(made.come("a", 2))
    await asyncio.sleep(0)
    with made.visit("a"), made.visit("b"):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        with made.visit("a"):
            await waiting

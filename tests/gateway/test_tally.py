"""Does a tally count each value in the right class?"""

import pytest

from gateway.tally import Tally


@pytest.mark.parametrize(
    ("value", "counts"),
    [(0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.001, [0, 1, 0]), (2.0, [0, 1, 0]), (2.001, [0, 0, 1])],
)
def test_a_bound_belongs_to_the_class_below_it(value: float, counts: list[int]) -> None:
    tally = Tally((1.0, 2.0))
    tally.add(value)
    assert (tally.counts, tally.total) == (counts, value)


def test_merging_adds_counts_and_totals_and_leaves_the_other_alone() -> None:
    whole, part = Tally((1.0,)), Tally((1.0,))
    whole.add(0.5)
    part.add(0.25)
    part.add(3.0)
    whole.merge(part)
    assert (whole.counts, whole.total) == ([2, 1], 3.75)
    assert (part.counts, part.total) == ([1, 1], 3.25)


def test_tallies_with_different_classes_are_not_merged() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Tally((1.0, 2.0)).merge(Tally((1.0,)))


def test_a_tally_starts_empty_or_from_counts_that_are_known() -> None:
    assert Tally((1.0, 2.0)) == Tally((1.0, 2.0), [0, 0, 0], 0.0)
    assert Tally((1.0,), [3, 4], 9.5).counts == [3, 4]

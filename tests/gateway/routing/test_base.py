"""Do workers take turns?"""

import pytest

from gateway.routing.base import alternate
from tests.gateway.test_model import worker

A, B, C = worker("a"), worker("b"), worker("c")


@pytest.mark.parametrize(
    ("turn", "order"), [(0, [A, B, C]), (1, [B, C, A]), (2, [C, A, B]), (3, [A, B, C]), (301, [B, C, A])]
)
def test_each_turn_begins_at_the_next(turn: int, order: list[object]) -> None:
    assert alternate([A, B, C], turn) == order


def test_of_none_there_is_no_turn() -> None:
    assert alternate([], 3) == []

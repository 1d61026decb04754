"""What is a ticket equal to?"""

from gateway.fairness import State
from tests.gateway.fairness.tickets import ticket


def test_a_ticket_is_equal_to_nothing_but_itself() -> None:
    one, other = ticket(), ticket()

    assert one != other
    assert len({one, other, one}) == 2


def test_a_ticket_that_was_not_pushed_comes_after_all() -> None:
    assert ticket().state is State.NEW
    assert ticket().order > 10**12

"""Which of one tenant's requests goes first? The shortest, unless another has waited long.

The score is the work less AGING of it for each unit of time that was waited, the lowest first. All scores
fall at the same rate, so their order never changes, and the arrival can stand for the time: the key
`work + aging x arrived` needs no clock. Whoever has waited for 1 / aging times its work is overtaken by
nobody who comes later, not even by a request of no work at all.
"""

from bisect import bisect_left
from typing import Any

from gateway.fairness.ticket import Ticket

AGING = 0.25  # seconds of work that a second of waiting is worth: at most 4 times its size is waited

Rank = tuple[float, int]  # the key and, between equals, the number of the push


class Line:
    """Tickets in the order of their ranks.

    Sorted lists rather than a tree: up to some thousand tickets, moving the pointers behind a place is
    cheaper than one step of any tree in Python, a removal leaves nothing behind, and the work ahead of a
    rank is a sum over a slice.
    """

    __slots__ = ("_ranks", "_tickets", "_works")

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._tickets: list[Ticket[Any]] = []
        self._works: list[float] = []

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def head_rank(self) -> Rank:
        return self._ranks[0]

    @property
    def head(self) -> Ticket[Any]:
        return self._tickets[0]

    def add(self, rank: Rank, ticket: Ticket[Any]) -> None:
        index = bisect_left(self._ranks, rank)
        self._ranks.insert(index, rank)
        self._tickets.insert(index, ticket)
        self._works.insert(index, ticket.total_work)

    def remove(self, rank: Rank) -> None:
        index = bisect_left(self._ranks, rank)
        del self._ranks[index], self._tickets[index], self._works[index]

    def work_before(self, rank: Rank) -> float:
        """The total work of the tickets that go before a rank."""
        return sum(self._works[: bisect_left(self._ranks, rank)], 0.0)

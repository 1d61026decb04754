"""Which tenant has been served least?"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Any

from gateway.fairness.line import Line, Rank
from gateway.fairness.ticket import Ticket

_head_rank = attrgetter("head_rank")
SLACK = 16  # entries that a ranking may hold beyond twice the tenants in it


class Flow:
    """What one tenant has waiting in one band of one model, and the service it has had."""

    __slots__ = ("counter", "lines", "since", "tenant", "tickets", "unsettled", "weight", "work")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.weight = 1.0
        self.counter = 0.0  # work dispatched, over the weight
        self.since = -1  # the push with which it began to wait: who has waited longer goes first of equals
        self.lines: dict[int, Line] = {}  # by lane; none is empty
        self.tickets: dict[Ticket[Any], None] = {}  # oldest first
        self.work = 0.0  # of these tickets
        self.unsettled = 0

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.tickets and not self.unsettled

    def add(self, rank: Rank, ticket: Ticket[Any]) -> bool:
        """Whether it is the first of its lane."""
        self.tickets[ticket] = None
        self.work += ticket.total_work
        line = self.lines.get(ticket.lane)
        is_first = line is None
        if line is None:
            line = self.lines[ticket.lane] = Line()
        line.add(rank, ticket)
        return is_first

    def remove(self, rank: Rank, ticket: Ticket[Any]) -> bool:
        """Whether it was the last of its lane."""
        del self.tickets[ticket]
        self.work = self.work - ticket.total_work if self.tickets else 0.0  # sheds what rounding left
        line = self.lines[ticket.lane]
        line.remove(rank)
        if line:
            return False
        del self.lines[ticket.lane]
        return True

    def goes_before(self, other: "Flow") -> bool:
        if self.counter == other.counter:
            return self.since < other.since
        return self.counter < other.counter

    def first(self, lanes: Iterable[int]) -> Ticket[Any]:
        """The ticket that goes first of those in these lanes, of which there must be one."""
        lines = [self.lines[lane] for lane in lanes if lane in self.lines]
        return min(lines, key=_head_rank).head if len(lines) > 1 else lines[0].head

    def work_before(self, rank: Rank) -> float:
        return sum((line.work_before(rank) for line in self.lines.values()), 0.0)


class Ranking:
    """The flows that wait in one lane, least served first.

    A heap whose entries may be out of date. Each flow has one at or before its true place: a counter that
    rises is looked up when its entry comes to the top, one that falls is entered anew by `update`.
    """

    __slots__ = ("_heap", "_lane", "_size")

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self._heap: list[tuple[float, int, Flow]] = []
        self._size = 0

    def __len__(self) -> int:
        """How many flows wait."""
        return self._size

    def add(self, flow: Flow) -> None:
        """It has a first ticket in this lane."""
        self._size += 1
        self.update(flow)

    def discard(self) -> None:
        """A flow has no ticket in this lane any more."""
        self._size -= 1

    def update(self, flow: Flow) -> None:
        """The counter of a flow that waits here is lower than it was."""
        if len(self._heap) > 2 * self._size + SLACK:
            self.rebuild()
        heappush(self._heap, (flow.counter, flow.since, flow))

    def rebuild(self) -> None:
        """Drop what is out of date; needed also after all counters have been shifted."""
        flows = {flow for *_, flow in self._heap if self._lane in flow.lines}
        self._heap = [(flow.counter, flow.since, flow) for flow in flows]
        heapify(self._heap)

    def first(self, is_held: Callable[[str], bool] | None = None) -> Flow | None:
        """The least served flow whose tenant is not held."""
        flow = self._top()
        if not is_held:
            return flow
        passed: dict[Flow, None] = {}
        while flow and is_held(flow.tenant):
            passed[flow] = None
            heappop(self._heap)
            flow = self._top()
        for held in passed:
            heappush(self._heap, (held.counter, held.since, held))
        return flow

    def _top(self) -> Flow | None:
        heap = self._heap
        while heap:
            counter, since, flow = heap[0]
            if self._lane not in flow.lines:
                heappop(heap)
            elif counter != flow.counter or since != flow.since:
                heapreplace(heap, (flow.counter, flow.since, flow))
            else:
                return flow
        return None

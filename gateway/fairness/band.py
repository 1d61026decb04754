"""Whose turn is it within a band? The tenant's who has been served least, by its weight.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (arXiv 2401.00588):
each tenant's counter rises by work / weight at dispatch and is put right when the real work is known; the
lowest goes first. Between two tenants that always have something waiting, service / weight differs by no
more than twice the largest work / weight. Whoever returns is lifted to the lowest counter of those it
meets, so that nobody saves up credit while away. "Those it meets" wait in the same lane: with that lane
closed for a while, the lowest counter of all may be one that stands still.
"""

from collections.abc import Callable, Iterable
from typing import Any

from gateway.fairness.flows import SLACK, Flow, Ranking
from gateway.fairness.line import Rank
from gateway.fairness.ticket import Ticket

REBASE_AT = 2.0**30  # a counter above this has lost the digits of a short request's seconds


class TenantQueue:
    """The tickets of one band of one model."""

    def __init__(self, aging: float) -> None:
        self._aging = aging
        self._flows: dict[str, Flow] = {}  # those that wait or run, or were served more than who waits
        self._rankings: dict[int, Ranking] = {}  # by lane; none is empty
        self._left_last: Flow | None = None  # the tenant that most recently had nothing waiting any more
        self._unsettled = 0
        self._rebase_at = REBASE_AT
        self._sweep_at = SLACK
        self.work = 0.0  # total work that waits

    @property
    def is_waiting(self) -> bool:
        return bool(self._rankings)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing that left by dispatch is still to be settled."""
        return not self._rankings and not self._unsettled

    def flows(self) -> Iterable[Flow]:
        """The tenants that wait."""
        return (flow for flow in self._flows.values() if flow.tickets)

    def push(self, ticket: Ticket[Any]) -> None:
        flow = self._flows.get(ticket.tenant)
        if flow is None:
            if len(self._flows) > self._sweep_at:
                self._rebase()
            flow = self._flows[ticket.tenant] = Flow(ticket.tenant)
        flow.weight = ticket.weight
        if not flow.tickets:
            flow.counter = max(flow.counter, self._floor(ticket.lane))
            flow.since = ticket.order
        if flow.add(self._rank(ticket), ticket):
            ranking = self._rankings.get(ticket.lane)
            if ranking is None:
                ranking = self._rankings[ticket.lane] = Ranking(ticket.lane)
            ranking.add(flow)
        self.work += ticket.total_work

    def remove(self, ticket: Ticket[Any]) -> None:
        """A ticket leaves unserved."""
        self._take(self._flows[ticket.tenant], ticket)
        self._reset_if_idle()

    def dispatch(self, ticket: Ticket[Any]) -> None:
        flow = self._flows[ticket.tenant]
        self._take(flow, ticket)
        flow.unsettled += 1
        self._unsettled += 1
        flow.counter += ticket.total_work / ticket.weight
        if flow.counter > self._rebase_at:
            self._rebase()

    def settle(self, ticket: Ticket[Any], work: float) -> None:
        """The work of a dispatched ticket was this much."""
        flow = self._flows[ticket.tenant]
        flow.unsettled -= 1
        self._unsettled -= 1
        flow.counter += (work - ticket.total_work) / ticket.weight
        if work < ticket.total_work:
            for lane in flow.lines:
                self._rankings[lane].update(flow)
        self._reset_if_idle()

    def served_elsewhere(self, tenant: str, work: float) -> None:
        """Count what another queue served, for a tenant that is known here: others start level anyway."""
        if flow := self._flows.get(tenant):
            flow.counter += work / flow.weight

    def first(
        self, is_open: Callable[[int], bool], is_held: Callable[[str], bool] | None
    ) -> Ticket[Any] | None:
        """The next ticket of an open lane and of a tenant that is not held."""
        least = None
        open_lanes = []
        for lane, ranking in self._rankings.items():
            if is_open(lane):
                open_lanes.append(lane)
                flow = ranking.first(is_held)
                if flow and (least is None or flow.goes_before(least)):
                    least = flow
        return least.first(open_lanes) if least else None

    def work_before(self, ticket: Ticket[Any]) -> float:
        """The work of this band that goes before a ticket, waiting or still to come, if all is open.

        Exact for its tenant; for each other tenant off by less than the largest of its tickets, because a
        tenant passes the mark with a whole ticket: O(tenants).
        """
        flow = self._flows.get(ticket.tenant)
        own, counter, since = 0.0, flow.counter if flow else 0.0, ticket.order
        if flow and flow.tickets:
            own, since = flow.work_before(self._rank(ticket)), flow.since
        else:
            counter = max(counter, self._floor(ticket.lane))
        mark = counter + own / ticket.weight
        work = own
        for other in self.flows():
            if other is not flow and (other.counter, other.since) < (mark, since):
                mean = other.work / len(other.tickets)
                work += min(other.work, max(mean, (mark - other.counter) * other.weight))
        return work

    def _rank(self, ticket: Ticket[Any]) -> Rank:
        return ticket.prompt_work + self._aging * ticket.arrived_s, ticket.order

    def _take(self, flow: Flow, ticket: Ticket[Any]) -> None:
        if flow.remove(self._rank(ticket), ticket):
            ranking = self._rankings[ticket.lane]
            ranking.discard()
            if not ranking:
                del self._rankings[ticket.lane]
        if not flow.tickets:
            self._left_last = flow
        self.work = self.work - ticket.total_work if self._rankings else 0.0

    def _floor(self, lane: int) -> float:
        """What the counter of a tenant that comes to this lane is at least."""
        ranking = self._rankings.get(lane)
        met = [ranking] if ranking else self._rankings.values()
        counters = [flow.counter for ranking in met if (flow := ranking.first())]
        if counters:
            return min(counters)
        return self._left_last.counter if self._left_last else 0.0

    def _rebase(self) -> None:
        """Forget tenants that would be lifted anyway, and count from the lowest of the others."""
        counters = [flow.counter for flow in self.flows()]
        if not counters and self._left_last:
            counters = [self._left_last.counter]
        floor = min(counters, default=0.0)
        self._flows = {
            tenant: flow
            for tenant, flow in self._flows.items()
            if flow.counter > floor or not flow.is_idle or flow is self._left_last
        }
        for flow in self._flows.values():
            flow.counter -= floor
        for ranking in self._rankings.values():
            ranking.rebuild()
        highest = max((flow.counter for flow in self._flows.values()), default=0.0)
        self._rebase_at = max(REBASE_AT, 2 * highest)
        self._sweep_at = 2 * len(self._flows) + SLACK

    def _reset_if_idle(self) -> None:
        """With nothing waiting and nothing running, there is nobody left to be fair to."""
        if self.is_idle:
            self._flows.clear()
            self._left_last = None
            self._rebase_at, self._sweep_at = REBASE_AT, SLACK

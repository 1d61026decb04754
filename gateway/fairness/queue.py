"""Who waits, who is next, who must go? The whole queue of a process, without clocks or tasks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, Generic

from gateway.fairness.flows import Flow
from gateway.fairness.line import AGING
from gateway.fairness.schedule import Schedule
from gateway.fairness.ticket import BANDS, Band, PayloadT, State, Ticket

_order = attrgetter("order")
_NOBODY: Mapping[str, int] = {}


class FairQueue(Generic[PayloadT]):
    """Tickets in the order in which they should be served, each model for itself: its workers are its own.

    aging: work that one unit of waiting is worth; for work in tokens, 0.25 x tokens per second.
    Every ticket that is dispatched must be settled in the end; until then its tenant is remembered.
    """

    def __init__(self, aging: float = AGING) -> None:
        self._aging = aging
        self._schedules: dict[str, Schedule] = {}  # by model; none is idle
        self.waiting_by: Counter[tuple[str, int, int]] = Counter()  # model, lane and label; for reading,
        self.by_band: Counter[Band] = Counter()  # as are this
        self.by_tenant: Counter[str] = Counter()  # and this; none is 0
        self._by_model: dict[str, Counter[str]] = {}  # tenants that wait; none is 0 or empty
        self._waiting = 0
        self._pushed = 0

    def __len__(self) -> int:
        return self._waiting

    def push(self, ticket: Ticket[PayloadT]) -> None:
        """Raises ValueError for a ticket that has been pushed before."""
        if ticket.state is not State.NEW:
            raise ValueError("A ticket can be pushed only once.")
        ticket.state = State.WAITING
        ticket.order = self._pushed
        self._pushed += 1
        self._waiting += 1
        self.waiting_by[ticket.model, ticket.lane, ticket.label] += 1
        self.by_band[ticket.band] += 1
        self.by_tenant[ticket.tenant] += 1
        self._by_model.setdefault(ticket.model, Counter())[ticket.tenant] += 1
        schedule = self._schedules.get(ticket.model)
        if schedule is None:
            schedule = self._schedules[ticket.model] = Schedule(self._aging)
        schedule.push(ticket)

    def peek(
        self,
        model: str,
        is_open: Callable[[int], bool] = lambda lane: True,
        is_held: Callable[[str], bool] | None = None,
    ) -> Ticket[PayloadT] | None:
        """The model's ticket that should be served next, of those that may be; it stays in the queue.

        is_open: whether tickets of a lane may go at present; asked once or twice for each band and lane
            in which there are tickets, whatever their number.
        is_held: whether a tenant must wait at present; asked for tenants that would be first but for that.
        """
        schedule = self._schedules.get(model)
        return schedule.first(is_open, is_held) if schedule else None

    def dispatch(self, ticket: Ticket[PayloadT]) -> None:
        """Take off a ticket that is served now, and charge its tenant and band the work it is expected to be.

        Raises ValueError for a ticket that does not wait.
        """
        if ticket.state is not State.WAITING:
            raise ValueError("Only a ticket that waits can be dispatched.")
        self._leave(ticket, State.DISPATCHED)
        self._schedules[ticket.model].dispatch(ticket)

    def settle(self, ticket: Ticket[PayloadT], work: float) -> None:
        """A dispatched ticket came to this much work, 0 if none was done: its tenant's counter is put right.

        Does nothing for a ticket that is settled already.
        """
        if ticket.state is State.DISPATCHED:
            ticket.state = State.DONE
            self._schedules[ticket.model].settle(ticket, work)
            self._drop_if_idle(ticket.model)

    def served_elsewhere(self, model: str, tenant: str, work: float) -> None:
        """A tenant's requests for a model came to so much work in another queue with the same workers."""
        if schedule := self._schedules.get(model):
            schedule.served_elsewhere(tenant, work)

    def remove(self, ticket: Ticket[PayloadT]) -> bool:
        """Take off a ticket that will not be served. False, and nothing is done, if it does not wait."""
        if ticket.state is not State.WAITING:
            return False
        self._leave(ticket, State.DONE)
        self._schedules[ticket.model].remove(ticket)
        self._drop_if_idle(ticket.model)
        return True

    def ahead(self, ticket: Ticket[PayloadT]) -> float:
        """The work that would be dispatched before this ticket, be it new or waiting, if nobody else came.

        Only what the order puts before it counts. An estimate: within its band it is off by less than the
        largest ticket of each other tenant together, because tenants take turns by whole tickets; where a
        band's share decides, by that over the share. Takes no account of lanes that are closed.
        """
        schedule = self._schedules.get(ticket.model)
        return schedule.work_before(ticket) if schedule else 0.0

    def victims(self) -> Iterator[Ticket[PayloadT]]:
        """All tickets, those first that should be shed first; tickets may be removed meanwhile.

        The lowest band first; in it the newest ticket of whichever tenant has most waiting for its weight.
        To make room for a newcomer, push it and remove the first victim: it may be the newcomer.
        """
        for band in reversed(BANDS):
            yield from _largest_first(self._flows(band))

    def models(self) -> list[str]:
        """For which some wait."""
        return list(self._by_model)

    def waiting(self, model: str) -> Mapping[str, int]:
        """How many wait for a model, for tenants that have any waiting for it."""
        return self._by_model.get(model, _NOBODY)

    def __iter__(self) -> Iterator[Ticket[PayloadT]]:
        """All that wait, in no order."""
        return (ticket for band in BANDS for flow in self._flows(band) for ticket in flow.tickets)

    def _flows(self, band: Band) -> Iterator[Flow]:
        return (flow for schedule in self._schedules.values() for flow in schedule.bands[band].flows())

    def _leave(self, ticket: Ticket[PayloadT], state: State) -> None:
        ticket.state = state
        self._waiting -= 1
        self.waiting_by[ticket.model, ticket.lane, ticket.label] -= 1
        self.by_band[ticket.band] -= 1
        _discount(self.by_tenant, ticket.tenant)
        tenants = self._by_model[ticket.model]
        _discount(tenants, ticket.tenant)
        if not tenants:
            del self._by_model[ticket.model]

    def _drop_if_idle(self, model: str) -> None:
        if self._schedules[model].is_idle:
            del self._schedules[model]


def _discount(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


def _largest_first(flows: Iterator[Flow]) -> Iterator[Ticket[Any]]:
    """Again and again the newest ticket of the tenant with most tickets over weight."""
    tickets: dict[str, list[Ticket[Any]]] = {}
    weights = {}
    for flow in flows:
        weights[flow.tenant] = flow.weight
        if flow.tenant in tickets:  # with another model
            tickets[flow.tenant] = sorted([*tickets[flow.tenant], *flow.tickets], key=_order)
        else:
            tickets[flow.tenant] = list(flow.tickets)
    heap = [(-len(held) / weights[tenant], -held[-1].order, tenant) for tenant, held in tickets.items()]
    heapify(heap)
    while heap:
        tenant = heappop(heap)[2]
        held = tickets[tenant]
        yield held.pop()
        if held:
            heappush(heap, (-len(held) / weights[tenant], -held[-1].order, tenant))

"""The same queue, by lists and sums alone: slow, and plain enough to be believed."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from gateway.fairness import BANDS, Ticket

SHARES = {"default": 0.2, "batch": 0.05}

Place = tuple[str, str]  # a model and a band
Everything = range(1000)  # of lanes


class NaiveQueue:
    def __init__(self) -> None:
        self.waiting: list[Ticket[Any]] = []  # as they came
        self.running: list[Ticket[Any]] = []
        self.counters: dict[Place, dict[str, float]] = defaultdict(dict)
        self.since: dict[tuple[Place, str], int] = {}
        self.left_last: dict[Place, str] = {}
        self.owed: dict[Place, float] = defaultdict(float)
        self.number: dict[Ticket[Any], int] = {}

    def copy(self) -> "NaiveQueue":
        other = NaiveQueue()
        other.waiting, other.running = list(self.waiting), list(self.running)
        other.counters.update({place: dict(counters) for place, counters in self.counters.items()})
        other.owed.update(self.owed)
        other.since, other.left_last = dict(self.since), dict(self.left_last)
        other.number = dict(self.number)
        return other

    def at(self, place: Place) -> list[Ticket[Any]]:
        return [ticket for ticket in self.waiting if (ticket.model, ticket.band) == place]

    def push(self, ticket: Ticket[Any]) -> None:
        place, tenant = (ticket.model, ticket.band), ticket.tenant
        self.number[ticket] = len(self.number)
        if all(other.tenant != tenant for other in self.at(place)):
            counters = self.counters[place]
            counters[tenant] = max(counters.get(tenant, 0.0), self._floor(place, ticket.lane))
            self.since[place, tenant] = self.number[ticket]
        self.waiting.append(ticket)

    def _floor(self, place: Place, lane: int) -> float:
        counters = self.counters[place]
        there = self.at(place)
        met = [other for other in there if other.lane == lane] or there
        if met:
            return min(counters[other.tenant] for other in met)
        return counters[self.left_last[place]] if place in self.left_last else 0.0

    def peek(self, model: str, open_: Iterable[int] = Everything, held: Iterable[str] = ()) -> Any:
        firsts = {}
        for band in BANDS:
            free = [t for t in self.at((model, band)) if t.lane in open_ and t.tenant not in held]
            if free:
                firsts[band] = self._first((model, band), free)
        for band in BANDS[1:]:
            if band in firsts and 0 < self.owed[model, band] >= firsts[band].total_work:
                return firsts[band]
        return next(iter(firsts.values()), None)

    def _first(self, place: Place, free: list[Ticket[Any]]) -> Ticket[Any]:
        counters = self.counters[place]
        tenant = min({t.tenant for t in free}, key=lambda name: (counters[name], self.since[place, name]))
        return min(
            (t for t in free if t.tenant == tenant),
            key=lambda t: (t.prompt_work + 0.25 * t.arrived_s, self.number[t]),
        )

    def dispatch(self, ticket: Ticket[Any]) -> None:
        place = (ticket.model, ticket.band)
        for band, share in SHARES.items():
            if self.at((ticket.model, band)):
                self.owed[ticket.model, band] += share * ticket.total_work
        if ticket.band in SHARES:
            self.owed[place] = max(self.owed[place] - ticket.total_work, 0.0)
        self._leave(ticket)
        self.running.append(ticket)
        self.counters[place][ticket.tenant] += ticket.total_work / ticket.weight

    def settle(self, ticket: Ticket[Any], work: float) -> None:
        self.running.remove(ticket)
        place = (ticket.model, ticket.band)
        self.counters[place][ticket.tenant] += (work - ticket.total_work) / ticket.weight
        self._forget_if_idle(place)

    def remove(self, ticket: Ticket[Any]) -> None:
        self._leave(ticket)
        self._forget_if_idle((ticket.model, ticket.band))

    def _leave(self, ticket: Ticket[Any]) -> None:
        place = (ticket.model, ticket.band)
        self.waiting.remove(ticket)
        if all(other.tenant != ticket.tenant for other in self.at(place)):
            self.left_last[place] = ticket.tenant
        waiting = sum(other.total_work for other in self.at(place))
        self.owed[place] = min(self.owed[place], waiting)

    def _forget_if_idle(self, place: Place) -> None:
        if not self.at(place) and all((t.model, t.band) != place for t in self.running):
            self.counters.pop(place, None)
            self.left_last.pop(place, None)

    def victims(self) -> list[Ticket[Any]]:
        order = []
        for band in reversed(BANDS):
            left = [ticket for ticket in self.waiting if ticket.band == band]
            while left:
                held = Counter(ticket.tenant for ticket in left)
                newest = {t.tenant: t for t in left}
                weight = {t.tenant: t.weight for t in left}
                worst = max(held, key=lambda name: (held[name] / weight[name], self.number[newest[name]]))
                order.append(newest[worst])
                left.remove(newest[worst])
        return order

    def ahead(self, ticket: Ticket[Any]) -> float:
        """By doing it."""
        future = self.copy()
        if ticket not in future.waiting:
            future.push(ticket)
        work = 0.0
        while (first := future.peek(ticket.model)) is not ticket:
            work += first.total_work
            future.dispatch(first)
        return work

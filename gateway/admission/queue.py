"""Who waits gets a place as soon as there is one for it, in fair order."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic

from gateway import settings
from gateway.admission.entry import LONG, Entry, PlaceT, Waiter
from gateway.admission.turn import Turn
from gateway.errors import Draining, GatewayError, NoWorker
from gateway.fairness import FairQueue, Ticket
from gateway.model import Job, Trip

HEADROOM = 1 / 16  # of a model's places, that tenants beyond their share leave to others
AGING = 30_000  # by which a second of waiting is weighed against a prompt: about what is read in it


class Admission(Generic[PlaceT]):
    """The queue of this process.

    place: takes a place at a worker for a request that has waited so many seconds; None while there is none
    for it; raises NoWorker where no worker is well.
    capacity: how many requests a model's workers hold at once.
    is_confined: whether some of a request's workers cannot have it.
    observe: is told of each wait: bucket, seconds, and how it ended.
    """

    def __init__(
        self,
        rules: settings.Admission,
        place: Callable[[Job, float], PlaceT | None],
        clock: Callable[[], float],
        observe: Callable[[int, float, str], None] = lambda bucket, waited_s, outcome: None,
        capacity: Callable[[str], int] = lambda model: 0,
        is_confined: Callable[[Job], bool] = lambda job: False,
    ) -> None:
        self._rules = rules
        self._place = place
        self.clock = clock
        self._observe = observe
        self._capacity = capacity
        self._queue: FairQueue[Waiter[PlaceT]] = FairQueue(AGING)
        self._entry = Entry(rules, self._queue, clock, capacity, is_confined)
        self.on_settled: Callable[[Job, float], None] = lambda job, work: None
        self._running: Counter[tuple[str, str]] = Counter()  # by model and tenant
        self._running_all: Counter[str] = Counter()  # by model
        self._draining = False

    def replace(self, rules: settings.Admission) -> None:
        """From now on, by these."""
        self._rules = self._entry.rules = rules

    def enter(self, job: Job, trip: Trip) -> Awaitable[Turn[PlaceT]]:
        """A lease on a place at a worker: `with await`, which waits for it. Raises Refused."""
        return Turn(self, job, trip).take()

    def waiting(self) -> Mapping[tuple[str, bool], int]:
        """How many wait, by model and whether their prompts are long; not: where none do."""
        waiting: Counter[tuple[str, bool]] = Counter()
        for (model, lane, _), count in self._queue.waiting_by.items():
            waiting[model, bool(lane & LONG)] += count
        return +waiting

    def depth(self) -> Mapping[int, int]:
        """How many wait, by bucket."""
        depth: Counter[int] = Counter()
        for (*_, bucket), count in self._queue.waiting_by.items():
            depth[bucket] += count
        return depth

    def served_elsewhere(self, model: str, tenant: str, work: float) -> None:
        """Another process served a tenant's requests, which came to so much work."""
        self._queue.served_elsewhere(model, tenant, work)

    def wake_all(self) -> None:
        """There may be places for any model."""
        for model in self._queue.models():
            self.wake(model)

    def wake(self, model: str) -> None:
        """There may be a place: give it to whoever is next of those that it fits."""
        tenants = self._queue.waiting(model)
        if not tenants:
            return
        closed: set[int] = set()  # lanes for which there is no place at present
        if len(tenants) > 1:
            most = self._rules.tenant_flight_share * self._capacity(model)
            self._serve(model, closed, lambda tenant: self._running[model, tenant] >= most > 0)
        # What none of the others can use, nobody is kept from, but for a little.
        self._serve(model, closed, lambda tenant: not self._leaves_room(model, tenant))

    def drain(self) -> None:
        """Refuse whoever comes from now on; those who wait are still served."""
        self._draining = True

    def take(self, job: Job) -> PlaceT | None:
        """A place for one who just came. None: it must wait, for others do or there is none free.

        Raises Draining; NoWorker where no worker is well.
        """
        if self._draining:
            message = "This gateway is shutting down. Try again at once: another one answers."
            raise Draining(message, retry_after_s=1)
        if self._queue.waiting(job.model) or not self._leaves_room(job.model, job.caller.tenant.id):
            return None
        place = self._place(job, 0.0)
        if place is None:
            return None
        self._begin(job)
        self._observe(job.bucket, 0.0, "served")
        return place

    async def wait(self, job: Job, trip: Trip) -> tuple[Ticket[Waiter[PlaceT]], PlaceT]:
        """A place, after those who go before. Raises Refused; at once, if it would come too late."""
        began = self.clock()
        outcome = "served"
        max_wait_s = min(self._rules.max_wait_s, job.max_wait_s)
        try:
            ticket = self._entry.admit(job, max_wait_s)
            self.wake(job.model)  # there may be a place for it, if for none of those before it
            return ticket, await self._turn(ticket, max_wait_s)
        except GatewayError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "client_gone"
            raise
        finally:
            trip.queue_s = waited_s = self.clock() - began
            self._observe(job.bucket, waited_s, outcome)

    def leave(self, job: Job, trip: Trip, ticket: Ticket[Waiter[PlaceT]] | None, held_s: float) -> None:
        """A request that had a place for so long is over. Its place itself is closed by who holds it."""
        whose = job.model, job.caller.tenant.id
        self._running[whose] -= 1
        self._running_all[job.model] -= 1
        if not self._running[whose]:
            del self._running[whose]
        work = self._entry.ended(job, trip, ticket, held_s)
        if ticket is not None:
            self.on_settled(job, work)

    def _begin(self, job: Job) -> None:
        self._running[job.model, job.caller.tenant.id] += 1
        self._running_all[job.model] += 1
        self._entry.begun(job.model)

    def _leaves_room(self, model: str, tenant: str) -> bool:
        """Whether a tenant may take a place: one that has its share already leaves the last ones to others.

        For as long as there are others: whoever is alone may have all. So who comes beside a flood finds a
        place at once, for less than a worker loses by a few streams fewer.
        """
        running, own = self._running_all[model], self._running[model, tenant]
        if own == running or own * 2 < running:
            return True
        capacity = self._capacity(model)
        if not capacity:  # no worker takes anything: that is what it should hear, and not wait
            return True
        return own < self._rules.tenant_flight_share * capacity or running < capacity * (1 - HEADROOM)

    def _serve(self, model: str, closed: set[int], is_held: Callable[[str], bool]) -> None:
        now = self.clock()
        while (ticket := self._queue.peek(model, lambda lane: lane not in closed, is_held)) is not None:
            waiter = ticket.payload
            if waiter.turn.done():  # who waited has just left
                self._queue.remove(ticket)
                continue
            try:
                place = self._place(waiter.job, now - ticket.arrived_s)
            except NoWorker as error:
                self._queue.remove(ticket)
                waiter.turn.set_exception(error)
                continue
            if place is None:
                closed.add(ticket.lane)
                continue
            self._queue.dispatch(ticket)
            self._begin(waiter.job)  # now, so that the next in this round is judged by it
            waiter.turn.set_result(place)

    async def _turn(self, ticket: Ticket[Waiter[PlaceT]], max_wait_s: float) -> PlaceT:
        try:
            async with asyncio.timeout(max_wait_s):
                return await ticket.payload.turn
        except TimeoutError:
            self._leave_behind(ticket)
            reason = f"No model server was free within {max_wait_s:g} s."
            raise self._entry.overloaded(ticket.model, reason) from None
        except asyncio.CancelledError:
            self._leave_behind(ticket)
            raise

    def _leave_behind(self, ticket: Ticket[Waiter[PlaceT]]) -> None:
        """Give back the place that came in the instant in which its taker left."""
        job, turn = ticket.payload.job, ticket.payload.turn
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.leave(job, _nothing_done(job), ticket, 0.0)
            turn.result().close()
        else:
            turn.cancel()
            self._queue.remove(ticket)
            self.wake(ticket.model)  # it may have been the one for whom there was no place


def _nothing_done(job: Job) -> Trip:
    return Trip(job.id, job.endpoint, 0.0)

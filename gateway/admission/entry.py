"""May this request wait for its turn, and if not, when should it come back?"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, cast

from gateway import settings
from gateway.errors import Overloaded, RateLimited, Refused
from gateway.estimates import Pace
from gateway.fairness import BANDS, Band, FairQueue, Ticket
from gateway.model import Job, Trip, Usage

LONG, CONFINED = 1, 2  # lanes, alone or both: these may have to wait while others find a place
OUTPUT_WEIGHT = 2  # an output token costs a worker about twice what a prompt token does (VTC's own weights)


class Place(Protocol):
    """A request's place at a worker. Closing it gives it back; closing it twice is harmless."""

    def close(self) -> None: ...


PlaceT = TypeVar("PlaceT", bound=Place)


class Waiter(Generic[PlaceT]):
    """One who waits."""

    __slots__ = ("job", "turn")

    def __init__(self, job: Job, turn: "asyncio.Future[PlaceT]") -> None:
        self.job = job
        self.turn = turn


class Entry(Generic[PlaceT]):
    """The way into the queue, and what is learnt at the way out: how long it takes to come to its end."""

    def __init__(
        self,
        rules: settings.Admission,
        queue: FairQueue[Waiter[PlaceT]],
        clock: Callable[[], float],
        capacity: Callable[[str], int],
        is_confined: Callable[[Job], bool],
    ) -> None:
        self.rules = rules
        self._is_confined = is_confined
        self._queue = queue
        self._clock = clock
        self._capacity = capacity
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)  # by model

    def admit(self, job: Job, max_wait_s: float) -> Ticket[Waiter[PlaceT]]:
        """Into the queue, if there is room and its turn can come in time. Raises Refused."""
        ticket = self._ticket(job)
        self._check_room(ticket)
        wait_s = self._paces[job.model].seconds_for(self._queue.ahead(ticket), self._capacity(job.model))
        if wait_s > max_wait_s:
            reason = f"A model server would be free in {wait_s:.0f} s, after {max_wait_s:g} s."
            raise self.overloaded(job.model, reason)
        if len(self._queue) >= self.rules.max_queued:
            self._shed_one()  # not before it is sure that the newcomer is let in
        self._queue.push(ticket)
        return ticket

    def overloaded(self, model: str, reason: str) -> Refused:
        wait_s = self._until_drained(model, len(self._queue))
        return Overloaded(f"{reason} Try again in {wait_s:.0f} s.", retry_after_s=wait_s)

    def begun(self, model: str) -> None:
        """A request was given a place."""
        self._paces[model].take()

    def ended(self, job: Job, trip: Trip, ticket: Ticket[Waiter[PlaceT]] | None, held_s: float) -> float:
        """A request gives its place back; returns its work. ticket: of one who had to wait."""
        used = trip.charged or Usage(0, 0)
        work = _work(used.prompt_tokens, used.completion_tokens)
        self._paces[job.model].give_back(held_s, work)
        if ticket is not None:
            self._queue.settle(ticket, work)
        return work

    def _ticket(self, job: Job) -> Ticket[Waiter[PlaceT]]:
        tenant = job.caller.tenant
        return Ticket(
            tenant=tenant.id,
            weight=tenant.weight,
            band=cast(Band, tenant.priority),
            model=job.model,
            lane=LONG * job.is_long | CONFINED * self._is_confined(job),
            label=job.bucket,
            prompt_work=job.prompt_tokens,
            total_work=_work(job.prompt_tokens, job.expected_output_tokens),
            arrived_s=self._clock(),
            payload=Waiter[PlaceT](job, asyncio.get_running_loop().create_future()),
        )

    def _check_room(self, ticket: Ticket[Waiter[PlaceT]]) -> None:
        limit, waiting = self.rules.max_queued, len(self._queue)
        lower_bands = BANDS[BANDS.index(ticket.band) + 1 :]
        if waiting >= limit and not any(self._queue.by_band[lower] for lower in lower_bands):
            raise self.overloaded(ticket.model, "Too many requests are waiting for a model server.")
        share = self.rules.tenant_queue_share * limit
        if waiting * 2 >= limit and self._queue.by_tenant[ticket.tenant] >= share:
            message = (
                "This key's tenant has its whole share of the queue waiting. Wait for some to be served."
            )
            wait_s = self._until_drained(ticket.model, int(share))
            raise RateLimited("queue_share", message, retry_after_s=wait_s)

    def _shed_one(self) -> None:
        """Make room in a full queue by refusing one of the lowest band."""
        victim = next(self._queue.victims())
        self._queue.remove(victim)
        if not victim.payload.turn.done():  # otherwise it has just left
            reason = "Requests of higher priority have filled the queue."
            victim.payload.turn.set_exception(self.overloaded(victim.model, reason))

    def _until_drained(self, model: str, requests: int) -> float:
        """Seconds, as they are told: 1 to 60."""
        return min(max(self._paces[model].seconds_for_requests(requests, self._capacity(model)), 1.0), 60.0)


def _work(prompt_tokens: int, output_tokens: int) -> float:
    """In prompt tokens."""
    return prompt_tokens + OUTPUT_WEIGHT * output_tokens

"""When is it this request's turn? A bounded queue, first come first served for each model."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from gateway import settings
from gateway.errors import Draining, GatewayError, NoWorker, Overloaded, RateLimited, Refused
from gateway.model import Job, Trip

SMOOTHING = 0.1  # weight of the newest interval between two departures


class Place(Protocol):
    """A request's place at a worker. Closing it gives it back; closing it twice is harmless."""

    def close(self) -> None: ...


PlaceT = TypeVar("PlaceT", bound=Place)


@dataclass(eq=False, slots=True)
class _Waiter(Generic[PlaceT]):
    job: Job
    turn: "asyncio.Future[PlaceT]"


class Admission(Generic[PlaceT]):
    """The queue of this process.

    place: takes a place at a worker; None while all are full; raises NoWorker where none is well.
    observe: is told of each wait: bucket, seconds, and how it ended.
    """

    def __init__(
        self,
        rules: settings.Admission,
        place: Callable[[Job], PlaceT | None],
        clock: Callable[[], float],
        observe: Callable[[int, float, str], None] = lambda bucket, waited_s, outcome: None,
    ) -> None:
        self._observe = observe
        self._rules = rules
        self._place = place
        self._clock = clock
        self._queues: dict[str, deque[_Waiter[PlaceT]]] = {}
        self._by_bucket: Counter[int] = Counter()
        self._by_tenant: Counter[str] = Counter()
        self._waiting = 0
        self._draining = False
        self._departed_at = clock()
        self._interval_s = 0.0  # between two departures, while there is a queue

    def enter(self, job: Job, trip: Trip) -> "Turn[PlaceT]":
        """A lease on a place at a worker: `async with`. Entering it waits, or raises Refused."""
        return Turn(self, job, trip)

    def depth(self) -> Mapping[int, int]:
        """How many wait, by bucket."""
        return self._by_bucket

    def wake(self, model: str) -> None:
        """A place may be free: give it to whoever waits longest."""
        queue = self._queues.get(model)
        while queue:
            waiter = queue[0]
            if not waiter.turn.done():
                try:
                    place = self._place(waiter.job)
                except NoWorker as error:
                    waiter.turn.set_exception(error)
                else:
                    if place is None:
                        return
                    waiter.turn.set_result(place)
                    self._note_departure()
            queue.popleft()

    def drain(self) -> None:
        """Refuse whoever comes from now on; those who wait are still served."""
        self._draining = True

    async def _wait(self, job: Job) -> PlaceT:
        self._check_room(job)
        waiter: _Waiter[PlaceT] = _Waiter(job, asyncio.get_running_loop().create_future())
        if not self._waiting:
            self._departed_at = self._clock()  # the time without a queue says nothing of how fast it drains
        self._queues.setdefault(job.model, deque()).append(waiter)
        self._count(job, +1)
        try:
            async with asyncio.timeout(self._rules.max_wait_s):
                return await waiter.turn
        except TimeoutError:
            self._leave_behind(waiter)
            raise self._overloaded(f"No model server was free within {self._rules.max_wait_s:g} s.") from None
        except asyncio.CancelledError:
            self._leave_behind(waiter)
            raise
        finally:
            self._count(job, -1)

    def _leave_behind(self, waiter: _Waiter[PlaceT]) -> None:
        """Give back the place that came in the instant in which its taker left."""
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            waiter.turn.result().close()
        else:
            waiter.turn.cancel()
            self.wake(waiter.job.model)  # takes it off the queue if it was first

    def _count(self, job: Job, step: int) -> None:
        self._waiting += step
        self._by_bucket[job.bucket] += step
        self._by_tenant[job.caller.tenant.id] += step
        if not self._by_tenant[job.caller.tenant.id]:
            del self._by_tenant[job.caller.tenant.id]

    def _check_room(self, job: Job) -> None:
        limit = self._rules.max_queued
        if self._waiting >= limit:
            raise self._overloaded("Too many requests are waiting for a model server.")
        share = self._rules.tenant_queue_share * limit
        if self._waiting * 2 >= limit and self._by_tenant[job.caller.tenant.id] >= share:
            message = (
                "This key's tenant has its whole share of the queue waiting. Wait for some to be served."
            )
            raise RateLimited("queue_share", message, retry_after_s=self._estimate_s(int(share)))

    def _overloaded(self, reason: str) -> Refused:
        wait_s = self._estimate_s(self._waiting)
        return Overloaded(f"{reason} Try again in {wait_s:.0f} s.", retry_after_s=wait_s)

    def _note_departure(self) -> None:
        now = self._clock()
        interval_s = now - self._departed_at
        self._departed_at = now
        self._interval_s += SMOOTHING * (interval_s - self._interval_s) if self._interval_s else interval_s

    def _estimate_s(self, ahead: int) -> float:
        """How long until `ahead` requests have left, as fast as they leave now: 1 to 60 s."""
        return min(max(ahead * self._interval_s, 1.0), 60.0)


class Turn(Generic[PlaceT]):
    """A lease on a place. The place may be exchanged for another; whichever it holds is given back."""

    __slots__ = ("_admission", "_job", "_trip", "place")

    place: PlaceT

    def __init__(self, admission: Admission[PlaceT], job: Job, trip: Trip) -> None:
        self._admission = admission
        self._job = job
        self._trip = trip

    async def __aenter__(self) -> "Turn[PlaceT]":
        admission, job = self._admission, self._job
        if admission._draining:
            raise _draining()
        place = None if admission._queues.get(job.model) else admission._place(job)
        if place is not None:
            self.place = place
            admission._observe(self._job.bucket, 0.0, "served")
            return self
        began = admission._clock()
        outcome = "served"
        try:
            self.place = await admission._wait(self._job)
        except GatewayError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "client_gone"
            raise
        finally:
            self._trip.queue_s = waited_s = admission._clock() - began
            admission._observe(self._job.bucket, waited_s, outcome)
        return self

    def move(self, place: PlaceT) -> None:
        """Give this place back and hold another in its stead."""
        self.place.close()
        self.place = place

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.place.close()


def _draining() -> Draining:
    return Draining("This gateway is shutting down. Try again at once: another one answers.", retry_after_s=1)

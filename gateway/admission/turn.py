"""The lease on a place at a worker: waited for, perhaps exchanged, given back however the request ends."""

from types import TracebackType
from typing import Generic, Protocol

from gateway.admission.entry import PlaceT, Waiter
from gateway.fairness import Ticket
from gateway.model import Job, Trip


class Places(Protocol[PlaceT]):
    """Where turns come from: Admission, as a turn sees it."""

    def clock(self) -> float: ...
    def take(self, job: Job) -> PlaceT | None: ...
    async def wait(self, job: Job, trip: Trip) -> tuple[Ticket[Waiter[PlaceT]], PlaceT]: ...
    def leave(self, job: Job, trip: Trip, ticket: Ticket[Waiter[PlaceT]] | None, held_s: float) -> None: ...


class Turn(Generic[PlaceT]):
    """A lease on a place. The place may be exchanged for another; whichever it holds is given back."""

    __slots__ = ("_began", "_job", "_places", "_ticket", "_trip", "place")

    place: PlaceT

    def __init__(self, places: Places[PlaceT], job: Job, trip: Trip) -> None:
        self._places = places
        self._job = job
        self._trip = trip
        self._ticket: Ticket[Waiter[PlaceT]] | None = None  # of one who had to wait

    async def take(self) -> "Turn[PlaceT]":
        place = self._places.take(self._job)
        if place is None:
            self._ticket, place = await self._places.wait(self._job, self._trip)
        self.place = place
        self._began = self._places.clock()
        return self

    def move(self, place: PlaceT) -> None:
        """Give this place back and hold another in its stead."""
        self.place.close()
        self.place = place

    def __enter__(self) -> "Turn[PlaceT]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            held_s = self._places.clock() - self._began
            self._places.leave(self._job, self._trip, self._ticket, held_s)
        finally:
            self.place.close()

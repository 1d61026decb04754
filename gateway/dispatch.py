"""Rank, and open: take a place at the best worker that has room, and bring the request to it."""

from collections.abc import Callable, Collection, Mapping

from gateway.accounting import Ledger
from gateway.admission import Turn
from gateway.errors import WorkerUnreachable
from gateway.fleet import Fleet, Slot
from gateway.model import Job, Trip
from gateway.routing import Policy
from gateway.upstream import Answer, WorkerClient

MAX_FAILOVERS = 2


class Dispatcher:
    """clients: one for each worker of the fleet, by id. What all requests have in common, they add."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        clients: Mapping[str, WorkerClient],
        ledger: Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._clients = clients
        self._ledger = ledger
        self._clock = clock
        self._turn = 0

    def place(self, job: Job, without: Collection[str] = ()) -> Slot | None:
        """A place at the best worker that has room; None if all are full. Raises NoWorker if none is well."""
        for worker in self._policy(job, self._fleet.workers(job.model, without), self._turn):
            if worker.in_flight < worker.limit:
                self._turn += 1
                return self._fleet.occupy(worker.id, job)
        return None

    async def open(self, job: Job, turn: Turn[Slot], trip: Trip) -> Answer:
        """The answer's head, from the worker of this turn or, if that is out of reach, from another.

        Only a connection that never came about is tried elsewhere: there the worker cannot have begun.
        """

        def sent() -> None:
            trip.sent_at = self._clock()

        headers = [(b"x-request-id", job.id.encode("ascii"))]
        tried: list[str] = []
        while True:
            member = turn.place.member
            trip.worker = member.id
            try:
                return await self._clients[member.id].post(job.endpoint.path, headers, job.body, sent)
            except WorkerUnreachable as error:
                trip.sent_at = None
                self._ledger.worker_failures[member.id, error.kind] += 1
                self._fleet.unreachable(member, error.detail)
                tried.append(member.id)
                other = self.place(job, tried) if len(tried) <= MAX_FAILOVERS else None
                if other is None:
                    raise
                self._ledger.retries += 1
                turn.move(other)

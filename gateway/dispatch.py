"""Rank, and open: take a place at the best worker that has room, and bring the request to it."""

from collections.abc import Callable, Collection, Mapping
from math import inf

from gateway import settings
from gateway.accounting import Ledger
from gateway.admission import Turn
from gateway.errors import WorkerUnreachable
from gateway.fleet import Fleet, Slot
from gateway.model import Job, Trip, Worker
from gateway.routing import Policy
from gateway.upstream import Answer, WorkerClient

MAX_FAILOVERS = 2
STEP_TOKENS = (
    8192  # prompts that a worker can begin in its next step, however many they are (vLLM on a large GPU)
)


class Dispatcher:
    """clients: one for each worker of the fleet, by id. What all requests have in common, they add."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        clients: Mapping[str, WorkerClient],
        ledger: Ledger,
        clock: Callable[[], float],
        rules: settings.Routing,
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._clients = clients
        self._ledger = ledger
        self._clock = clock
        self._rules = rules
        self._turn = 0

    def place(self, job: Job, waited_s: float = 0.0, without: Collection[str] = ()) -> Slot | None:
        """A place at the best worker that has room for it, or None. Raises NoWorker if none is well.

        waited_s: by the request, for its turn.
        """
        for worker in self._policy(job, self._fleet.workers(job, without), self._turn, waited_s):
            if self._has_room(worker, job.is_long):
                self._turn += 1
                return self._fleet.occupy(worker.id, job)
        return None

    def _has_room(self, worker: Worker, is_long: bool) -> bool:
        """Whether it can begin with one more now. What it would let wait had better wait here, in order."""
        rules = self._rules
        return (
            worker.in_flight < worker.limit
            and (worker.prefilling < rules.max_prefills or worker.prefill_tokens < STEP_TOKENS)
            and (worker.takes_long or not is_long)
        )

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
                other = self.place(job, inf, tried) if len(tried) <= MAX_FAILOVERS else None
                if other is None:
                    raise
                if not job.stream:
                    other.prompt_done()  # it has no first token that would tell
                self._ledger.retries += 1
                turn.move(other)

"""Rank, and open: take a place at the best worker that has room, and bring the request to it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf

from gateway import settings
from gateway.accounting import Ledger
from gateway.admission import Turn
from gateway.errors import WorkerBusy, WorkerDeclined, WorkerError, WorkerUnreachable
from gateway.fleet import EJECTED, WELL, Fleet, Member, Slot
from gateway.model import Job, Trip, Worker
from gateway.routing import Policy
from gateway.upstream import Answer, WorkerClient

MAX_FAILOVERS = 2  # of one request
BUDGET = 0.1  # of all requests, that may be sent to another worker after one could not have them
BUDGET_FEW_PER_S = 0.3  # besides, so that a quiet gateway has some too
BUDGET_FEW = 3.0
BUDGET_MOST = 100.0  # that may come at once, when a worker dies under load
BUSY = 429
BUSY_S = 1.0  # a worker that said so is avoided for that long
STEP_TOKENS = (
    8192  # prompts that a worker can begin in its next step, however many they are (vLLM on a large GPU)
)


class RetryBudget:
    """Keeps retries from becoming a load of their own: a share of what is asked anyway.

    A token bucket that requests fill, as Finagle's RetryBudget. Each process has its own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._balance = BUDGET_FEW
        self._at_s = clock()

    def deposit(self) -> None:
        """For each request."""
        self._balance = min(self._balance + BUDGET, BUDGET_MOST)

    def withdraw(self) -> bool:
        """For each retry. False: there shall be none."""
        now_s = self._clock()
        if self._balance < BUDGET_FEW:
            self._balance = min(self._balance + (now_s - self._at_s) * BUDGET_FEW_PER_S, BUDGET_FEW)
        self._at_s = now_s
        if self._balance < 1:
            return False
        self._balance -= 1
        return True


class Dispatcher:
    """clients: one for each worker of the fleet. What all requests have in common, they add."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        clients: Mapping[Member, WorkerClient],
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
        self._budget = RetryBudget(clock)

    def replace(self, policy: Policy, rules: settings.Routing) -> None:
        """From now on, by these."""
        self._policy = policy
        self._rules = rules

    def place(self, job: Job, waited_s: float = 0.0) -> Slot | None:
        """A place at the best worker that has room for it, or None. Raises NoWorker if none is well.

        waited_s: by the request, for its turn.
        """
        place = self._place_among(self._fleet.workers(job), job, waited_s)
        if place is None and (spare := self._fleet.spare(job)):
            place = self._place_among(spare, job, waited_s)
        return place

    def _place_among(self, workers: Sequence[Worker], job: Job, waited_s: float) -> Slot | None:
        for worker in self._policy(job, workers, self._turn, waited_s):
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

    def open(self, job: Job, turn: Turn[Slot], trip: Trip) -> Awaitable[Answer]:
        """The answer's head, from the worker of this turn."""
        member = turn.place.member
        trip.worker = member.id
        if not trip.tried:
            self._budget.deposit()

        def sent() -> None:
            trip.sent_at = self._clock()

        headers = [(b"x-request-id", job.id.encode("ascii"))]
        return self._clients[member].post(job.endpoint.path, headers, job.body, sent)

    def ended(self, member: Member, trip: Trip) -> None:
        """A worker's answer has come to its end. Whether that speaks for it, `trip` tells."""
        if trip.outcome == "ok":
            self._fleet.served(member)
        elif trip.outcome == "incomplete":
            self._count(member, "incomplete")
            self._fleet.failed(member, "incomplete")
        elif trip.status == BUSY:
            self._fleet.busy(member, BUSY_S)

    def failed(self, job: Job, turn: Turn[Slot], trip: Trip, error: WorkerError | WorkerBusy) -> bool:
        """A worker failed the request of this turn. Whether it has a place at another one now.

        Only a worker that cannot have begun, or says that it has not, is replaced, and within the budget. One
        that is busy is, by one that is not known to be: they may all be.
        """
        member = turn.place.member
        self._count(member, error.kind)
        if isinstance(error, WorkerUnreachable):
            self._fleet.unreachable(member, error.detail)
        elif isinstance(error, WorkerBusy):
            self._fleet.busy(member, error.retry_after_s or BUSY_S)
        else:
            self._fleet.failed(member, error.kind)
        if not isinstance(error, WorkerUnreachable | WorkerDeclined | WorkerBusy):
            return False
        trip.sent_at = None
        trip.tried = (*trip.tried, member.id)
        place = self._elsewhere(job, trip, WELL if isinstance(error, WorkerBusy) else EJECTED)
        if place is None:
            return False
        if not job.stream:
            place.prompt_done()  # it has no first token that would tell
        self._ledger.retries += 1
        turn.move(place)
        return True

    def _elsewhere(self, job: Job, trip: Trip, standing: int) -> Slot | None:
        if len(trip.tried) > MAX_FAILOVERS:
            return None
        workers = self._fleet.workers(job, trip.tried, standing)
        if not workers or not self._budget.withdraw():
            return None
        return self._place_among(workers, job, inf)

    def _count(self, member: Member, kind: str) -> None:
        self._ledger.worker_failures[member.id, kind] += 1

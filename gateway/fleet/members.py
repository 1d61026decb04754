"""The workers: whether each is well, and what it holds."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from gateway import settings
from gateway.errors import NoWorker
from gateway.model import Job, Worker

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Member:
    """One worker. Counts are of this process alone."""

    id: str
    configured: str  # the model that it is there for
    limit: int
    models: frozenset[str] = frozenset()  # that, and adapters of it; filled in from its own report
    up: bool = False
    failures: int = 0  # in a row
    ejected_until: float = 0.0  # no health check brings it back before that
    in_flight: int = 0
    prefill_tokens: int = 0
    total_tokens: int = 0

    def snapshot(self) -> Worker:
        return Worker(self.id, self.in_flight, self.limit, self.prefill_tokens, self.total_tokens)


class Slot:
    """A request's place at one worker, counted until it is closed."""

    __slots__ = ("_fleet", "_job", "_open", "_prefilling", "_tokens", "member")

    def __init__(self, fleet: "Fleet", member: Member, job: Job) -> None:
        self.member = member
        self._fleet = fleet
        self._job = job
        self._open = self._prefilling = True
        member.in_flight += 1
        member.prefill_tokens += job.prompt_tokens
        self._tokens = job.total_tokens
        member.total_tokens += self._tokens

    def first_token(self) -> None:
        """Its prompt is done, or will never be."""
        if self._prefilling:
            self._prefilling = False
            self.member.prefill_tokens -= self._job.prompt_tokens

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        member = self.member
        if self._prefilling:
            self.first_token()
        member.in_flight -= 1
        member.total_tokens -= self._tokens
        self._fleet.room_at(member)


class Fleet:
    """on_room: is called with a model's name when a worker may take one more request for it."""

    def __init__(
        self, rules: settings.Fleet, members: Iterable[Member], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.members = {member.id: member for member in members}
        self._members = tuple(self.members.values())
        for member in self._members:
            member.models |= {member.configured}
        self.on_room: Callable[[str], None] = lambda model: None
        self._rules = rules
        self._clock = clock

    def workers(self, model: str, without: Collection[str] = ()) -> Sequence[Worker]:
        """The workers that serve a model and are well, apart from some. Raises NoWorker if none is well."""
        found = [
            Worker(member.id, member.in_flight, member.limit, member.prefill_tokens, member.total_tokens)
            for member in self._members
            if member.up and model in member.models and member.id not in without
        ]
        if not found and not any(member.up and model in member.models for member in self._members):
            raise NoWorker(
                "No model server is up for this model. Try again shortly.",
                retry_after_s=self._rules.probe_interval_s,
            )
        return found

    def occupy(self, worker_id: str, job: Job) -> Slot:
        return Slot(self, self.members[worker_id], job)

    def is_ready(self) -> bool:
        return any(member.up for member in self.members.values())

    def room_at(self, member: Member) -> None:
        for model in member.models:
            self.on_room(model)

    def healthy(self, member: Member) -> None:
        """A health check succeeded."""
        if member.up:
            member.failures = 0
        elif self._clock() >= member.ejected_until:
            member.failures = 0
            member.up = True
            log.info("worker %s is up", member.id)
            self.room_at(member)

    def ill(self, member: Member, reason: str) -> None:
        """A health check failed. After enough of them the worker is passed over until one succeeds."""
        member.failures += 1
        if member.up and member.failures >= self._rules.failures:
            member.up = False
            log.warning("worker %s is down: %s", member.id, reason)
            self.room_at(member)  # so that those who wait for it alone hear of it

    def unreachable(self, member: Member, reason: str) -> None:
        """A request could not be brought to it. Enough of that in a row ejects it for ejection_s."""
        self.ill(member, reason)
        if not member.up:
            member.ejected_until = self._clock() + self._rules.ejection_s

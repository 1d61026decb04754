"""Which workers are there for a request, and what is it to be told of each?"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Never

from gateway import settings
from gateway.errors import NoWorker
from gateway.estimates import Prefixes, Work, prefill_cost
from gateway.fleet.contexts import Contexts
from gateway.fleet.health import AVOIDED, EJECTED, WELL
from gateway.fleet.member import Member
from gateway.fleet.slot import Slot
from gateway.model import Job, Worker
from gateway.peers import NOTHING, Others, WorkerShare

log = logging.getLogger(__name__)

TICK_S = 1.0


class Fleet:
    """on_room: is called with a model's name when a worker may take one more request for it.

    on_work: is called when a request looks for a place. on_trouble: with a worker that could not be reached.
    max_long_prefills: of each worker, over all processes. others: what other processes have at the workers;
    None where there are none.
    """

    def __init__(
        self,
        rules: settings.Fleet,
        members: Iterable[Member],
        clock: Callable[[], float] = time.monotonic,
        max_long_prefills: int = 1,
        others: Others | None = None,
    ) -> None:
        self.members = {member.id: member for member in members}
        self._members = tuple(self.members.values())
        self.on_room: Callable[[str], None] = lambda model: None
        self.on_work: Callable[[], None] = lambda: None
        self.on_left: Callable[[Member], None] = lambda member: None
        self.on_trouble: Callable[[Member], None] = lambda member: None
        self.max_long_prefills = max_long_prefills
        self._others = others
        self._rules = rules
        self._clock = clock
        self._prefixes = Prefixes()
        self._leaving: list[Member] = []
        self._all_sound = True  # so that nobody need ask of each worker how it stands
        self.contexts = Contexts()

    def add(self, member: Member) -> None:
        """One more worker. It gets requests once a health check has succeeded."""
        self.members[member.id] = member
        self._members = tuple(self.members.values())

    def retire(self, member: Member) -> None:
        """Give nothing new to a worker; `on_left` is called once what is under way there has ended."""
        member.draining = member.leaving = True
        self._leaving.append(member)
        log.info("worker %s leaves", member.id)
        self.room_at(member)  # so that those who wait for it alone hear of it
        self._see_off()

    def _see_off(self) -> None:
        for member in [of for of in self._leaving if not of.in_flight]:
            self._leaving.remove(member)
            if self.members.get(member.id) is member:  # else there is another one of that name already
                del self.members[member.id]
            self._members = tuple(self.members.values())
            self.contexts.forget(member.id)
            self.on_left(member)

    def capacity(self, model: str) -> int:
        """How many requests of this process the workers that take some for a model hold at once."""
        return sum(self._limit(of) for of in self._members if of.takes_requests and model in of.models)

    def takes_long(self, model: str) -> bool:
        """Whether some worker may read one more long prompt for this process now."""
        return any(self._takes_long(of) for of in self._members if of.takes_requests and model in of.models)

    def shares(self) -> dict[str, WorkerShare]:
        """What this process has at each worker at which it has something."""
        return {member.id: member.share() for member in self._members if member.load.requests}

    def note_others(self) -> None:
        """What others have at the workers has changed."""
        if self._others is not None:
            now_s = self._clock()
            for member in self._members:
                if self._others.worker(member.id).prefilling:
                    member.load.prompts_elsewhere(now_s)

    def workers(self, job: Job, without: Collection[str] = (), standing: int = EJECTED) -> Sequence[Worker]:
        """The workers that take a job, apart from some. Raises NoWorker if there are none.

        Those of the best standing that any has: who is ejected counts only where there is no other. None, if
        that is worse than `standing`.
        """
        self.on_work()
        members = self._members_for(job)
        if without:
            members = [of for of in members if of.id not in without]
        if not self._all_sound and members:
            best = min(of.health.standing(self._clock()) for of in members)
            members = self._of_standing(members, best) if best <= standing else []
        return self._snapshots(members, job)

    def spare(self, job: Job) -> Sequence[Worker]:
        """Those that get a job only where none of `workers` has room for it."""
        if self._all_sound:
            return ()
        members = self._members_for(job)
        standings = {of.health.standing(self._clock()) for of in members}
        if not standings >= {WELL, AVOIDED}:
            return ()
        return self._snapshots(self._of_standing(members, AVOIDED), job)

    def _members_for(self, job: Job) -> list[Member]:
        model = job.model
        members = [of for of in self._members if of.up and not of.draining and model in of.models]
        if least := self.contexts.least(job):
            members = [of for of in members if self.contexts.of(of.id, model) >= least]
        if not members:
            which = "model with prompts of this length" if least else "model"
            raise NoWorker(
                f"No model server is up for this {which}. Try again shortly.",
                retry_after_s=self._rules.probe_interval_s,
            )
        return members

    def _of_standing(self, members: list[Member], standing: int) -> list[Member]:
        now_s = self._clock()
        return [of for of in members if of.health.standing(now_s) == standing]

    def _snapshots(self, members: list[Member], job: Job) -> Sequence[Worker]:
        same = 0 if job.chain else prefill_cost(job.prompt_tokens)  # at each that has nothing in its cache
        if self._others is None:
            most = self.max_long_prefills
            return [
                of.snapshot(same or of.cost(job, self._prefixes), takes_long=of.long_prefills < most)
                for of in members
            ]
        return [self._among_others(of, same or of.cost(job, self._prefixes), self._others) for of in members]

    def is_confined(self, job: Job) -> bool:
        """Whether only some of its model's workers are long enough for it."""
        return self.contexts.least(job) > 0

    def occupy(self, worker_id: str, job: Job) -> Slot:
        member = self.members[worker_id]
        work = Work(member.cost(job, self._prefixes), job.expected_output_tokens)
        if job.chain:
            self._prefixes.note(worker_id, job.chain)
        on_proof = None
        if not self._all_sound and member.health.is_on_trial(self._clock()):
            member.health.is_tried = True
            on_proof = self._trial_passed
        return Slot(member, job, work, self._clock, self.room_at, self._beside(member), on_proof)

    async def keep_learning(self) -> Never:
        """Once a second, let what was learnt take effect."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Let what was learnt lately take effect. To be called about once a second."""
        now_s = self._clock()
        for member in self._members:
            if member.tick(now_s, self._beside(member)) or member.health.is_on_trial(now_s):
                self.room_at(member)
        self._all_sound = all(member.health.is_sound for member in self._members)
        self._see_off()

    def _among_others(self, member: Member, own_tokens: int, others: Others) -> Worker:
        beside = others.worker(member.id)
        return member.snapshot(own_tokens, beside, self._limit(member), self._takes_long(member))

    def _beside(self, member: Member) -> WorkerShare:
        return NOTHING if self._others is None else self._others.worker(member.id)

    def _limit(self, member: Member) -> int:
        limit = member.limit
        return limit if self._others is None else self._others.ceiling(member.id, member.configured, limit)

    def _takes_long(self, member: Member) -> bool:
        most = self.max_long_prefills
        if self._others is not None:
            most = self._others.long_ceiling(member.id, member.configured, most)
        return member.long_prefills < most

    def is_ready(self) -> bool:
        return any(member.takes_requests for member in self._members)

    def drain(self, ids: Collection[str]) -> None:
        """Give nothing new to these workers and to no others; what is under way at them goes on.

        Ids of workers that are not here are ignored: another gateway may have them.
        """
        for member in self._members:
            draining = member.id in ids or member.leaving
            if draining != member.draining:
                member.draining = draining
                log.info("worker %s %s", member.id, "is draining" if draining else "takes requests again")
                self.room_at(member)  # those who wait for it alone hear of either

    def room_at(self, member: Member) -> None:
        for model in member.models:
            self.on_room(model)

    # What health checks tell

    def healthy(self, member: Member) -> None:
        """A health check succeeded."""
        member.failures = 0
        if not member.up:
            member.up = True
            self._prefixes.forget(member.id)  # it may have been started anew
            log.info("worker %s is up", member.id)
            if member.was_up:
                self._warm_up(member)
            member.was_up = True
            self.room_at(member)

    def ill(self, member: Member, reason: str) -> None:
        """A health check failed. After enough of them the worker is passed over until one succeeds."""
        member.failures += 1
        if member.up and member.failures >= self._rules.failures:
            member.up = False
            log.warning("worker %s is down: %s", member.id, reason)
            self.room_at(member)  # so that those who wait for it alone hear of it
        elif not member.was_up and member.failures == self._rules.failures:
            log.warning("worker %s has not come up yet: %s", member.id, reason)

    # What requests tell

    def unreachable(self, member: Member, reason: str) -> None:
        """A request could not be brought to it."""
        self.failed(member, "unreachable")
        self.ill(member, reason)
        self.on_trouble(member)

    def failed(self, member: Member, kind: str) -> None:
        """A request failed by its fault. Enough of that in a row ejects it, while others can do its work."""
        rules, now_s = self._rules, self._clock()
        can_be_spared = self._can_do_without(member, now_s)
        for_s = member.health.fail(now_s, rules.failures, rules.ejection_s, can_be_spared)
        self._all_sound = self._all_sound and member.health.is_sound
        if for_s:
            log.warning(
                "worker %s gets no requests for %g s: too many failed there, the last: %s",
                member.id, for_s, kind,
            )  # fmt: skip
            self.room_at(member)

    def served(self, member: Member) -> None:
        """A request ended well."""
        if member.health.failed:
            member.health.succeed()

    def busy(self, member: Member, for_s: float) -> None:
        """It refused a request, as it has enough to do. Others come first for so long."""
        member.health.avoid(self._clock() + for_s)
        self._all_sound = False

    def _can_do_without(self, member: Member, now_s: float) -> bool:
        """Whether that leaves at least half of those that are up for its model."""
        peers = [of for of in self._members if of.takes_requests and of.configured == member.configured]
        ejected = sum(of.health.standing(now_s) == EJECTED for of in peers if of is not member)
        return (ejected + 1) * 2 <= len(peers)

    def _trial_passed(self, member: Member) -> None:
        member.health.pass_trial()
        log.info("worker %s gets requests again", member.id)
        self._warm_up(member)
        self.room_at(member)

    def _warm_up(self, member: Member) -> None:
        """More and more, unless there is no other that could have the rest meanwhile."""
        if any(
            of.takes_requests and of.configured == member.configured
            for of in self._members
            if of is not member
        ):
            member.health.warm_up(self._clock())
            member.set_limit(self._clock())

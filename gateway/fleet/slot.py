"""A request's place at a worker, and what its answer tells of the worker."""

from collections.abc import Callable

from gateway.estimates import Work
from gateway.fleet.member import Member
from gateway.model import Job
from gateway.peers import NOTHING, WorkerShare


class Slot:
    """Counted until it is closed. Any call may come twice.

    on_room: is called when the worker may take more than before. beside: what other processes have there.
    on_proof: where it is the worker's trial, is called when that is passed.
    """

    __slots__ = (
        "_at_s", "_beside", "_clock", "_job", "_on_proof", "_on_room", "_prefilling", "_share", "member",
    )  # fmt: skip

    def __init__(
        self,
        member: Member,
        job: Job,
        work: Work,
        clock: Callable[[], float],
        on_room: Callable[[Member], None],
        beside: WorkerShare = NOTHING,
        on_proof: Callable[[Member], None] | None = None,
    ) -> None:
        self.member = member
        self._job = job
        self._clock = clock
        self._on_room = on_room
        self._on_proof = on_proof
        self._prefilling = True
        self._at_s: float | None = clock()  # of the last thing that tells how fast it is; None once closed
        self._share = member.load.take(work)
        self._beside = beside
        member.long_prefills += job.is_long
        member.peak = max(member.peak, member.load.requests)

    def prefill_s(self) -> float:
        """How long its prompt takes, with those that were there before it; an estimate."""
        speed = self.member.speed
        tokens = self._ahead_tokens() + self._share.work.prefill_tokens
        return speed.first_token_s + tokens * speed.prefill_token_s

    def first_token(self) -> None:
        """The first token of a stream has come."""
        self.prove()
        if self._prefilling and self._at_s is not None:
            now_s, share = self._clock(), self._share
            waited_s, self._at_s = now_s - self._at_s, now_s
            if waited_s > 0:
                learn = self.member.coefficients.first_token
                learn(self._ahead_tokens(), share.work.prefill_tokens, waited_s)
            self._prompt_done(now_s)

    def prove(self) -> None:
        """The worker does its work."""
        self.member.answered += 1
        if self._on_proof is not None:
            self._on_proof(self.member)
            self._on_proof = None

    def prompt_done(self) -> None:
        """Its prompt is read, or will never be; which tells nothing of how fast the worker is."""
        if self._prefilling and self._at_s is not None:
            self._prompt_done(self._clock())

    def tokens(self, since_s: float, now_s: float, count: int) -> None:
        """So many tokens of its stream came in that time."""
        member = self.member
        member.answered += 1
        member.adaptive.observe((now_s - since_s) / count, member.load.only_decoded_since(since_s))

    def streamed(self, tokens: int) -> None:
        """Its stream has ended, after so many tokens."""
        if not self._prefilling and self._at_s is not None and self._job.sequences == 1:
            share = self._share
            lasted_s = self._clock() - self._at_s
            if lasted_s > 0:
                learn = self.member.coefficients.streamed
                streams = share.streams() + self._beside.in_flight - self._beside.prefilling
                learn(tokens, lasted_s, streams, share.prefilled_tokens())

    def close(self) -> None:
        if self._at_s is not None:
            self._at_s = None
            self._share.close()
            if self._on_proof is not None:
                self._on_proof = None
                self.member.health.is_tried = False  # it showed nothing: the next one is its trial
            if self._prefilling:
                self._prefilling = False
                self.member.long_prefills -= self._job.is_long
            self._on_room(self.member)

    def _ahead_tokens(self) -> int:
        return self._share.ahead_tokens + self._beside.prefill_tokens

    def _prompt_done(self, now_s: float) -> None:
        self._prefilling = False
        self._share.first_token(now_s)
        self.member.long_prefills -= self._job.is_long
        self._on_room(self.member)

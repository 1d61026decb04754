"""One worker: is it well, what has it to do, how fast is it, and how much at once is best for it?"""

from gateway.estimates import FLOOR, AdaptiveLimit, Coefficients, Prefixes, WorkerLoad, prefill_cost
from gateway.fleet.health import Health
from gateway.model import Job, Worker
from gateway.peers import NOTHING, WorkerShare


class Member:
    """All but `health`, `load` and `long_prefills`, of this process, holds for the worker as a whole."""

    __slots__ = (
        "adaptive",
        "answered",
        "coefficients",
        "configured",
        "draining",
        "failures",
        "health",
        "id",
        "leaving",
        "limit",
        "load",
        "long_prefills",
        "models",
        "peak",
        "speed",
        "up",
        "was_up",
    )

    def __init__(
        self, id: str, configured: str, max_concurrency: int, *, up: bool = False, is_adaptive: bool = True
    ) -> None:
        """configured: the model that it is there for. is_adaptive: whether its limit is below the most."""
        self.id = id
        self.configured = configured
        self.models = frozenset((configured,))  # that, and adapters of it; filled in from its own report
        self.up = up
        self.was_up = up  # ever
        self.draining = False  # takes nothing new, and is still looked after
        self.leaving = False  # likewise, and is gone once it has nothing left
        self.failures = 0  # health checks and connections in a row
        self.answered = 0  # times that tokens came from it; a sign of life
        self.health = Health()
        self.load = WorkerLoad()
        self.long_prefills = 0  # long prompts that have no first token
        self.peak = 0  # most requests at once since the last `tick`
        self.coefficients = Coefficients()
        self.speed = self.coefficients.speed
        self.adaptive = AdaptiveLimit(max_concurrency, floor=FLOOR if is_adaptive else max_concurrency)
        self.limit = self.adaptive.limit  # how many requests it may hold at once

    @property
    def takes_requests(self) -> bool:
        return self.up and not self.draining

    @property
    def in_flight(self) -> int:
        return self.load.requests

    def share(self) -> WorkerShare:
        """What this process has there."""
        load = self.load
        return WorkerShare(
            load.requests, load.prefilling, load.prefill_tokens, load.decode_tokens, self.long_prefills
        )

    def snapshot(
        self,
        own_tokens: int = 0,
        beside: WorkerShare = NOTHING,
        limit: int | None = None,
        takes_long: bool = True,
    ) -> Worker:
        """own_tokens: `prefill_cost` that a request to be placed would have here. beside: what others have.

        limit: of this process alone, where there are others.
        """
        load, speed = self.load, self.speed
        prefill_tokens = load.prefill_tokens + beside.prefill_tokens
        return Worker(
            self.id,
            load.requests,
            self.limit if limit is None else limit,
            load.prefilling + beside.prefilling,
            self.long_prefills + beside.long_prefills,
            takes_long,
            prefill_tokens,
            prefill_tokens * speed.prefill_token_s,
            (load.decode_tokens + beside.decode_tokens) * speed.decode_token_s,
            own_tokens * speed.prefill_token_s,
        )

    def cost(self, job: Job, prefixes: Prefixes) -> int:
        """The `prefill_cost` of a request here, as far as its prompt is not in the prefix cache."""
        cached = prefixes.cached_tokens(self.id, job.chain) if job.chain else 0
        return prefill_cost(job.prompt_tokens, cached)

    def tick(self, now_s: float, beside: WorkerShare = NOTHING) -> bool:
        """Let what was learnt in the last second take effect. Whether it takes more requests than before."""
        self.speed = self.coefficients.speed
        before = self.limit
        peak, self.peak = self.peak, self.load.requests
        self.adaptive.tick(now_s, peak + beside.in_flight)
        self.health.tick(now_s)
        self.set_limit(now_s)
        return self.limit > before

    def set_most(self, max_concurrency: int) -> None:
        """Another max_concurrency from now on."""
        self.adaptive.set_most(max_concurrency)
        self.limit = self.adaptive.limit

    def set_limit(self, now_s: float) -> None:
        """To what is best for it, or less while it warms up."""
        self.limit = max(round(self.adaptive.limit * self.health.part(now_s)), 1)

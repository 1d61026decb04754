"""One trip's record → counts and the log line.

Requests that have ended are counted many at a time: the same few functions run over each in turn, which
costs a processor less than half of what it costs to come back to them between other work.
"""

import time
from collections import Counter
from collections.abc import Callable

from gateway.model import Trip, Usage
from gateway.tally import Tally

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
BUCKETS = [str(bucket) for bucket in range(32)]  # labels made once; more than settings allow
MOST_WAITS_PUT_OFF = 1000
MOST_PUT_OFF = 16  # trips, each of which holds its request's body; while they are counted, others wait
NONE = "none"  # the label of a tenant, model or bucket that is not known: callers cannot make series

Labels = tuple[str, ...]


class Tallies(dict[Labels, Tally]):
    """A histogram by labels. Whoever is looked for is there."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        super().__init__()
        self._bounds = bounds

    def __missing__(self, labels: Labels) -> Tally:
        tally = self[labels] = Tally(self._bounds)
        return tally


class Ledger:
    """Counts what happened. Every label comes from the configuration or from a closed set of ours."""

    def __init__(
        self,
        clock: Callable[[], float],
        write_line: Callable[[dict[str, object]], None],
        put_off: Callable[[Callable[[], None]], object] | None = None,
        meter: Callable[[Trip], None] = lambda trip: None,
    ) -> None:
        """put_off: calls a function after a short while. Without it nothing is put off.

        meter: is told of each request of a known caller, for the tenant's account.
        """
        self._clock = clock
        self._write_line = write_line
        self._put_off = put_off
        self._meter = meter
        self._ended: list[Trip] = []
        self._waits: list[tuple[int, float, str]] = []
        self.requests: Counter[Labels] = Counter()
        self.tokens: Counter[Labels] = Counter()
        self.limited: Counter[Labels] = Counter()
        self.worker_failures: Counter[Labels] = Counter()
        self.retries = 0
        self.seconds = Tallies(SECONDS)
        self.ttft = Tallies(SECONDS)
        self.inter_token = Tallies(TOKEN_SECONDS)
        self.overhead = Tallies(OVERHEAD_SECONDS)
        self.queue_wait = Tallies(SECONDS)
        self.store_seconds = Tallies(OVERHEAD_SECONDS)
        self.estimate_error = Tallies(RATIOS)

    def gaps(self) -> Tally:
        """Where one stream's gaps between tokens are counted until it ends."""
        return Tally(TOKEN_SECONDS)

    def queued(self, bucket: int, waited_s: float, outcome: str) -> None:
        self._waits.append((bucket, waited_s, outcome))
        if self._put_off is None or len(self._waits) >= MOST_WAITS_PUT_OFF:
            self.fold()

    def close(self, trip: Trip) -> None:
        """Take note of a request that has ended, however it did."""
        trip.ended = self._clock()
        trip.ended_at = time.time()
        ended = self._ended
        ended.append(trip)
        if self._put_off is None or len(ended) >= MOST_PUT_OFF or (trip.job and len(trip.job.body) > 1):
            self.fold()  # a body in several pieces is a large one
        elif len(ended) == 1:
            self._put_off(self.fold)

    def fold(self) -> None:
        """Count what was put off."""
        ended, self._ended = self._ended, []
        waits, self._waits = self._waits, []
        for trip in ended:
            self._count(trip)
        for bucket, waited_s, outcome in waits:
            self.queue_wait[BUCKETS[bucket], outcome].add(waited_s)

    def _count(self, trip: Trip) -> None:
        tenant = trip.caller.tenant.id if trip.caller else NONE
        model = trip.job.model if trip.job else NONE
        self.requests[trip.endpoint, model, tenant, trip.outcome] += 1
        self.seconds[trip.endpoint, model].add(trip.ended - trip.began)
        if trip.sent_at is not None:
            self.overhead[()].add(trip.sent_at - trip.began - trip.queue_s)
        if trip.job and trip.first_token_at is not None and trip.outcome != "worker_refused":
            self.ttft[model, BUCKETS[trip.job.bucket]].add(trip.first_token_at - trip.began)
        if trip.gaps is not None:
            self.inter_token[model,].merge(trip.gaps)
        if trip.usage:
            self._count_tokens(trip, tenant, model, trip.usage)
        if trip.caller:
            self._meter(trip)
        self._write_line(_record(trip, tenant, model))

    def _count_tokens(self, trip: Trip, tenant: str, model: str, usage: Usage) -> None:
        self.tokens[tenant, model, "prompt"] += usage.prompt_tokens
        self.tokens[tenant, model, "completion"] += usage.completion_tokens
        if trip.job and usage.prompt_tokens:
            self.estimate_error[()].add(trip.job.prompt_tokens / usage.prompt_tokens)


def _record(trip: Trip, tenant: str, model: str) -> dict[str, object]:
    """The log line: never a prompt, never a key."""
    usage, charged, job = trip.usage, trip.charged, trip.job
    return {
        "time": trip.ended_at,
        "request_id": trip.id,
        "tenant": tenant,
        "key": trip.caller.key_id if trip.caller else "",
        "endpoint": trip.endpoint,
        "model": model,
        "stream": job.stream if job else None,
        "status": trip.status,
        "outcome": trip.outcome,
        "worker": trip.worker,
        "tried": list(trip.tried),
        "bucket": job.bucket if job else None,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "charged_tokens": charged.prompt_tokens + charged.completion_tokens if charged else None,
        "estimated_prompt_tokens": job.prompt_tokens if job else None,
        "queue_ms": round(trip.queue_s * 1000, 3),
        "ttft_ms": None
        if trip.first_token_at is None
        else round((trip.first_token_at - trip.began) * 1000, 3),
        "total_ms": round((trip.ended - trip.began) * 1000, 3),
        "detail": trip.detail,
    }

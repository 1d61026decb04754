"""One trip's record → metrics and the log line.

Requests that have ended are counted many at a time: the same few functions run over each in turn, which
costs a processor less than half of what it costs to come back to them between other work. The numbers become
Prometheus samples when they are scraped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.model import Trip, Usage, Worker
from gateway.tally import Tally

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
BUCKETS = [str(bucket) for bucket in range(32)]  # labels made once; more than settings allow
MOST_WAITS_PUT_OFF = 1000
MOST_PUT_OFF = 64  # trips, each of which holds its request's body
NONE = "none"  # the label of a tenant, model or bucket that is not known: callers cannot make series

Labels = tuple[str, ...]


class Tallies:
    """A histogram with labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.by_labels: dict[Labels, Tally] = {}

    def at(self, *labels: str) -> Tally:
        tally = self.by_labels.get(labels)
        if tally is None:
            tally = self.by_labels[labels] = Tally(self._bounds)
        return tally


class Ledger:
    """Counts what happened. Every label comes from the configuration or from a closed set of ours."""

    def __init__(
        self,
        clock: Callable[[], float],
        write_line: Callable[[dict[str, object]], None],
        put_off: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """put_off: calls a function after a short while. Without it nothing is put off."""
        self._clock = clock
        self._write_line = write_line
        self._put_off = put_off
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
            self.queue_wait.at(BUCKETS[bucket], outcome).add(waited_s)

    def _count(self, trip: Trip) -> None:
        tenant = trip.caller.tenant.id if trip.caller else NONE
        model = trip.job.model if trip.job else NONE
        self.requests[trip.endpoint, model, tenant, trip.outcome] += 1
        self.seconds.at(trip.endpoint, model).add(trip.ended - trip.began)
        if trip.sent_at is not None:
            self.overhead.at().add(trip.sent_at - trip.began - trip.queue_s)
        if trip.job and trip.first_token_at is not None and trip.outcome != "worker_refused":
            self.ttft.at(model, BUCKETS[trip.job.bucket]).add(trip.first_token_at - trip.began)
        if trip.gaps is not None:
            self.inter_token.at(model).merge(trip.gaps)
        if trip.usage:
            self._count_tokens(trip, tenant, model, trip.usage)
        self._write_line(_record(trip, tenant, model))

    def _count_tokens(self, trip: Trip, tenant: str, model: str, usage: Usage) -> None:
        self.tokens[tenant, model, "prompt"] += usage.prompt_tokens
        self.tokens[tenant, model, "completion"] += usage.completion_tokens
        if trip.job and usage.prompt_tokens:
            self.estimate_error.at().add(trip.job.prompt_tokens / usage.prompt_tokens)


def _record(trip: Trip, tenant: str, model: str) -> dict[str, object]:
    """The log line: never a prompt, never a key."""
    usage, job = trip.usage, trip.job
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
        "bucket": job.bucket if job else None,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "estimated_prompt_tokens": job.prompt_tokens if job else None,
        "queue_ms": round(trip.queue_s * 1000, 3),
        "ttft_ms": None
        if trip.first_token_at is None
        else round((trip.first_token_at - trip.began) * 1000, 3),
        "total_ms": round((trip.ended - trip.began) * 1000, 3),
        "detail": trip.detail,
    }


class GatewayCollector(Collector):
    """The ledger's numbers, and gauges of this moment, in Prometheus' terms.

    depth: how many requests wait, by bucket. workers: snapshots and whether each is up.
    """

    def __init__(
        self,
        ledger: Ledger,
        buckets: int,
        depth: Callable[[], Mapping[int, int]],
        workers: Callable[[], Sequence[tuple[Worker, bool]]],
    ) -> None:
        self._ledger = ledger
        self._buckets = buckets
        self._depth = depth
        self._workers = workers

    def describe(self) -> list[Metric]:
        return []  # nothing is collected at registration

    def collect(self) -> Iterator[Metric]:
        self._ledger.fold()
        yield from self._counters()
        yield from self._histograms()
        yield from self._gauges()

    def _counters(self) -> Iterator[Metric]:
        of = self._ledger
        yield _counter(
            "requests", "Requests by how they ended.", ("endpoint", "model", "tenant", "outcome"), of.requests
        )
        yield _counter("tokens", "Tokens that workers reported.", ("tenant", "model", "direction"), of.tokens)
        yield _counter("limited", "Requests refused by a tenant's own limit.", ("kind",), of.limited)
        yield _counter(
            "worker_failures",
            "Failures of workers, as met by requests.",
            ("worker", "kind"),
            of.worker_failures,
        )
        yield CounterMetricFamily(
            "gateway_retries", "Requests sent to another worker, the first being out of reach.", of.retries
        )

    def _histograms(self) -> Iterator[Metric]:
        of = self._ledger
        yield _histogram("request_seconds", "From head to end.", ("endpoint", "model"), of.seconds)
        yield _histogram("ttft_seconds", "Time to first token.", ("model", "bucket"), of.ttft)
        yield _histogram("inter_token_seconds", "Between two reads of a stream.", ("model",), of.inter_token)
        yield _histogram(
            "overhead_seconds", "From head to worker, without the wait in the queue.", (), of.overhead
        )
        yield _histogram("queue_wait_seconds", "Wait for a worker.", ("bucket", "outcome"), of.queue_wait)
        yield _histogram("store_seconds", "For one step of the limits' store.", (), of.store_seconds)
        yield _histogram(
            "estimate_error_ratio", "Estimated prompt tokens / real ones.", (), of.estimate_error
        )

    def _gauges(self) -> Iterator[Metric]:
        waiting = self._depth()
        depth = GaugeMetricFamily("gateway_queue_depth", "Requests that wait.", labels=("bucket",))
        for bucket in range(self._buckets):
            depth.add_metric((str(bucket),), waiting.get(bucket, 0))
        in_flight = GaugeMetricFamily("gateway_in_flight", "Requests at a worker.", labels=("worker",))
        limit = GaugeMetricFamily("gateway_concurrency_limit", "Most requests at once.", labels=("worker",))
        up = GaugeMetricFamily("gateway_worker_up", "1 if a worker is well.", labels=("worker",))
        for worker, is_up in self._workers():
            in_flight.add_metric((worker.id,), worker.in_flight)
            limit.add_metric((worker.id,), worker.limit)
            up.add_metric((worker.id,), float(is_up))
        degraded = GaugeMetricFamily("gateway_store_degraded", "1 while limits are not kept in the store.", 0)
        yield from (depth, in_flight, limit, up, degraded)


def _counter(name: str, text: str, labels: Labels, values: Counter[Labels]) -> Metric:
    family = CounterMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, value in list(values.items()):
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, labels: Labels, tallies: Tallies) -> Metric:
    family = HistogramMetricFamily(f"gateway_{name}", text, labels=labels)
    for key, tally in list(tallies.by_labels.items()):
        running, buckets = 0, []
        for bound, count in zip((*tally.bounds, float("inf")), tally.counts, strict=True):
            running += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(running)))
        family.add_metric(key, buckets, tally.total)
    return family

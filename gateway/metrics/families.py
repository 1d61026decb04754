"""Which metrics are there, under which labels, and how do those of several processes add up?

Counts and histograms are summed. Labels come from the configuration or from closed sets of ours.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass

from gateway.accounting import Labels


@dataclass(frozen=True, slots=True)
class Family:
    """name: without the prefix, and without what Prometheus appends to those of its kind."""

    name: str
    text: str
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Gauge(Family):
    together: Callable[[float, float], float] = operator.add


COUNTERS = (
    Family("requests", "Requests by how they ended.", ("endpoint", "model", "tenant", "outcome")),
    Family("tokens", "Tokens that workers reported.", ("tenant", "model", "direction")),
    Family("limited", "Requests refused by a tenant's own limit.", ("kind",)),
    Family("worker_failures", "Failures of workers, as met by requests.", ("worker", "kind")),
    Family("retries", "Requests sent to another worker, the first being out of reach."),
)
HISTOGRAMS = (
    Family("request_seconds", "From head to end.", ("endpoint", "model")),
    Family("ttft_seconds", "Time to first token.", ("model", "bucket")),
    Family("inter_token_seconds", "Between two reads of a stream.", ("model",)),
    Family("overhead_seconds", "From head to worker, without the wait in the queue."),
    Family("queue_wait_seconds", "Wait for a worker.", ("bucket", "outcome")),
    Family("store_seconds", "For one step of the limits' store."),
    Family("estimate_error_ratio", "Estimated prompt tokens / real ones."),
)
GAUGES = (
    Gauge("queue_depth", "Requests that wait.", ("bucket",)),
    Gauge("in_flight", "Requests at a worker.", ("worker",)),
    Gauge("concurrency_limit", "Most requests at once, of one process.", ("worker",), max),
    Gauge("worker_up", "1 if a worker is well, as some process sees it.", ("worker",), max),
    Gauge("store_degraded", "1 while some process does not keep limits in the store.", (), max),
)

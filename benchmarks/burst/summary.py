"""Which few numbers describe a burst? Pure: records in, summary out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from benchmarks.burst.records import Record


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a set of times in seconds, interpolated linearly between neighbours."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Rates are per second of wall time. Tokens and times are those of whole answers only."""

    requests: int
    ok: int
    failed: int
    retries: int
    wall_s: float  # from the first start to the last end
    requests_per_s: float  # whole answers
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    without_usage: int  # whole answers whose tokens could not be counted
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    latency_s: Percentiles | None
    errors: dict[str, int]  # most frequent first
    error_example: dict[str, str]  # the first message of each


def summarize(records: Sequence[Record]) -> Summary:
    """Raises ValueError for no records: a burst has at least one request."""
    wall_s = max(r.ended_s for r in records) - min(r.started_s for r in records)
    ok = [r for r in records if r.failure is None]
    failures = [r.failure for r in records if r.failure is not None]
    output_tokens = sum(r.output_tokens or 0 for r in ok)
    return Summary(
        requests=len(records),
        ok=len(ok),
        failed=len(failures),
        retries=sum(r.retries for r in records),
        wall_s=wall_s,
        requests_per_s=_rate(len(ok), wall_s),
        prompt_tokens=sum(r.prompt_tokens or 0 for r in ok),
        output_tokens=output_tokens,
        output_tokens_per_s=_rate(output_tokens, wall_s),
        without_usage=sum(r.output_tokens is None for r in ok),
        ttft_s=percentiles(r.ttft_s for r in ok),
        tpot_s=percentiles(r.tpot_s for r in ok),
        latency_s=percentiles(r.latency_s for r in ok),
        errors=dict(Counter(f.kind for f in failures).most_common()),
        error_example={f.kind: f.message for f in reversed(failures)},
    )


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Of the values that are there; None of none."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if len(present) == 1:
        return Percentiles(*present * 3)
    cuts = quantiles(present, n=100, method="inclusive")
    return Percentiles(cuts[49], cuts[89], cuts[98])


def _rate(count: int, wall_s: float) -> float:
    return count / wall_s if wall_s > 0 else 0.0

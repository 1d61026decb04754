"""What came of it all? Counts, and each promise with what speaks against it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from benchmarks import record
from benchmarks.chaos import answers, leftovers, quotas
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.mischief import EVERY_S
from benchmarks.targets import Row

DISTRIBUTIONS = ("vllm-gateway", "hiredis", "httptools", "openai", "redis", "uvicorn", "uvloop")
MOST_KEPT = 20  # of what speaks against one promise
RULES: Mapping[str, Callable[[Evidence], Iterator[str]]] = {
    "each success is complete": answers.complete,
    "no success is invented": answers.not_invented,
    "nothing is generated twice": answers.not_repeated,
    "each failure is told as one": answers.typed,
    "requests a minute hold": quotas.requests_a_minute,
    "tokens a minute hold": quotas.tokens_a_minute,
    "requests at once hold": quotas.slots,
    "all leases are freed": leftovers.leases,
    "all gauges are 0": leftovers.gauges,
    "nothing is generated for long after its caller left": leftovers.departures,
    "usage in Redis is that of the log": leftovers.usage,
    "each request is logged once": leftovers.lines,
    "a drained worker gets nothing new": leftovers.drained,
    "replicas end well, and serve well afterwards": leftovers.endings,
    "no bug shows": leftovers.bugs,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What speaks against a promise."""

    rule: str
    texts: Sequence[str]

    def kept(self) -> dict[str, Any]:
        """As JSON values."""
        return {"rule": self.rule, "violations": len(self.texts), "evidence": list(self.texts[:MOST_KEPT])}


def judge(found: Evidence) -> list[Finding]:
    """Each rule, whether or not it was broken."""
    return [Finding(rule, list(of(found))) for rule, of in RULES.items()]


def counts(found: Evidence) -> dict[str, Any]:
    """What happened, as JSON values."""
    plain = [call for call in found.calls if not call.is_hostile]
    return {
        "calls": {
            "all": len(found.calls),
            "through the SDK": sum(call.by == "sdk" for call in plain),
            "wrong on purpose": len(found.calls) - len(plain),
            "streamed": sum(call.wish.stream for call in plain),
            "while Redis was away, as told": sum(bool(call.degraded) for call in plain),
        },
        "outcomes": dict(Counter(call.outcome for call in plain).most_common()),
        "outcomes in the gateways' log": dict(Counter(line.outcome for line in found.lines).most_common()),
        "of those wrong on purpose": dict(
            sorted(Counter(f"{call.by}: {call.outcome}" for call in found.calls if call.is_hostile).items())
        ),
        "faults": {kind: sum(mishap.kind == kind for mishap in found.mishaps) for kind in EVERY_S},
        "at workers": {
            "requests": len(found.visits),
            "retries": sum(line.tried for line in found.lines),
            "tokens": sum(visit.tokens for visit in found.visits),
            **dict(Counter(visit.how or "killed" for visit in found.visits).most_common()),
        },
        "seconds in which processes may have gone by their own limits": round(
            sum(span.end - span.begin for span in found.outages), 1
        ),
        "tokens charged": sum(line.charged or 0 for line in found.lines),
    }


def rows(found: Evidence, findings: Sequence[Finding]) -> list[Row]:
    """For people."""
    told = counts(found)
    return [
        Row("calls", told["calls"]["all"]),
        *(Row(f"… {outcome}", count) for outcome, count in told["outcomes"].items()),
        Row("faults", len(found.mishaps)),
        Row("requests at workers", told["at workers"]["requests"]),
        Row("retries", told["at workers"]["retries"]),
        *(Row(f"against: {finding.rule}", len(finding.texts), "", 0) for finding in findings),
    ]


def document(
    found: Evidence, findings: Sequence[Finding], started_at: datetime, redis_version: str
) -> dict[str, Any]:
    """Everything about a run as JSON values."""
    return {
        "benchmark": "chaos",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": asdict(found.plan),
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS) | {"redis-server": redis_version},
        "commit": record.commit(),
        "counts": counts(found),
        "violations": sum(len(finding.texts) for finding in findings),
        "rules": [finding.kept() for finding in findings],
    }

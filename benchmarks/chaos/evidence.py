"""What is known afterwards? The logs of callers, gateways, workers and of what went wrong, side by side."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from benchmarks.chaos.calls import Call
from benchmarks.chaos.mischief import REDIS, Mishap
from benchmarks.chaos.plan import Plan
from benchmarks.chaos.visits import Visit

Found = TypeVar("Found")

KILLED = "gateway process killed"
NOTICED_S = 0.5  # that an event may be noted by one side later than by the other
# After Redis is well, until no process goes by its own limits any more; before, what had been sent already.
BACK_S, BEFORE_S = 3.0, 0.5


class Span(NamedTuple):
    """From then until then, by `time.time`."""

    begin: float
    end: float

    def meets(self, other: "Span") -> bool:
        return self.begin <= other.end and other.begin <= self.end

    def within(self, other: "Span") -> float:
        """How much of it lies there, in seconds."""
        return max(0.0, min(self.end, other.end) - max(self.begin, other.begin))


@dataclass(frozen=True, slots=True)
class Line:
    """One of the gateway's log of requests."""

    replica: int
    id: str
    tenant: str
    began_at: float
    ended_at: float
    status: int
    outcome: str
    tried: int  # workers that could not have it
    charged: int | None  # tokens; None: nothing, nor a request
    estimated: int  # tokens of the prompt

    @classmethod
    def read(cls, replica: int, text: str) -> "Line":
        told = json.loads(text)
        return cls(
            replica,
            told["request_id"],
            told["tenant"],
            told["time"] - told["total_ms"] / 1000,
            told["time"],
            told["status"],
            told["outcome"],
            len(told["tried"]),
            told["charged_tokens"],
            told["estimated_prompt_tokens"] or 0,
        )


def lines_of(replica: int, said: str) -> Iterator[Line]:
    """Of all that a replica has said."""
    return (Line.read(replica, line) for line in said.splitlines() if line.startswith("{"))


@dataclass(frozen=True)
class Evidence:
    """leases, gauges: when all was over. usage: requests and tokens that Redis has for each tenant.
    statuses: with which the replicas ended. said: by the gateways, beside the log of requests."""

    plan: Plan
    calls: Sequence[Call]
    visits: Sequence[Visit]
    lines: Sequence[Line]
    mishaps: Sequence[Mishap]
    leases: int
    gauges: Mapping[str, float]
    usage: Mapping[str, Sequence[int]]
    statuses: Sequence[int]
    said: str = ""

    @cached_property
    def visits_of(self) -> Mapping[str, list[Visit]]:
        """By request, in the order in which they came."""
        return _by_id((visit.request_id, visit) for visit in self.visits)

    @cached_property
    def lines_of(self) -> Mapping[str, list[Line]]:
        """By request."""
        return _by_id((line.id, line) for line in self.lines)

    def spans(self, *kinds: str, whom: str | None = None) -> list[Span]:
        """When this went wrong, with this one or with any."""
        return [
            Span(mishap.at, mishap.until)
            for mishap in self.mishaps
            if mishap.kind in kinds and whom in (None, mishap.whom)
        ]

    def was_killed(self, replica: int, span: Span) -> bool:
        """Whether a process of that replica was, about then."""
        wide = Span(span.begin - NOTICED_S, span.end + NOTICED_S)
        return any(each.meets(wide) for each in self.spans(KILLED, whom=str(replica)))

    def died_at(self, visit: Visit) -> float:
        """When the work for a visit had ended at the latest."""
        if visit.ended_at is not None:
            return visit.ended_at
        killed = [each.begin for each in self.spans("worker killed", whom=visit.worker)]
        # A worker that was there to the end was told to end after all calls had.
        return min((at for at in killed if at >= visit.came_at - NOTICED_S), default=float("inf"))

    @cached_property
    def outages(self) -> list[Span]:
        """When limits may not have been those of Redis, for some process at least."""
        away = [Span(m.at - BEFORE_S, m.until + BACK_S) for m in self.mishaps if m.whom == REDIS]
        told = [Span(c.begun_at - BEFORE_S, c.begun_at + BACK_S) for c in self.calls if c.degraded]
        return merged([*away, *told])


def merged(spans: Iterable[Span]) -> list[Span]:
    """Those that meet as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _by_id(pairs: Iterable[tuple[str, Found]]) -> Mapping[str, list[Found]]:
    found: Mapping[str, list[Found]] = defaultdict(list)
    for name, each in pairs:
        found[name].append(each)
    return found

"""Was any limit ever exceeded, beyond what is granted while Redis is away?"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from benchmarks.chaos.evidence import Evidence, Line, Span
from benchmarks.chaos.plan import PROCESSES, REPLICAS, TENANTS
from gateway.stores.fallback import SHARE

ALL = REPLICAS * PROCESSES
CLOCK_S = 0.5  # between the beginning of a request, which is logged, and its grant, which is not
END_S = 0.02  # a slot may be free so long before all that was there have noticed
PERIOD_S = 60.0


class Grant(NamedTuple):
    """Of a limit per minute."""

    at: float
    amount: int
    id: str


def requests_a_minute(found: Evidence) -> Iterator[str]:
    yield from _rates(found, "requests_per_minute", lambda line: 1)


def tokens_a_minute(found: Evidence) -> Iterator[str]:
    yield from _rates(found, "tokens_per_minute", lambda line: line.charged or 0)


def _rates(found: Evidence, name: str, amount: Callable[[Line], int]) -> Iterator[str]:
    for tenant, limits in TENANTS.items():
        if limit := limits.get(name):
            of_tenant = [line for line in found.lines if line.tenant == tenant and line.charged is not None]
            grants = sorted(Grant(line.began_at, amount(line), line.id) for line in of_tenant)
            yield from (f"{tenant}: {text}" for text in over_rate(grants, limit, found.outages))


def share(limit: int) -> int:
    """What one process grants by itself while Redis is away."""
    return max(1, int(limit * SHARE / ALL))


def over_rate(grants: Iterable[Grant], limit: int, outages: Iterable[Span]) -> Iterator[str]:
    """Where more was granted in some time than a minute's worth and what came back in that time.

    grants: in order. Each outage in that time allows all processes their shares once more.
    """
    away = list(outages)
    level, before, since = 0.0, 0.0, 0.0
    for grant in grants:
        level -= (grant.at - before) * limit / PERIOD_S
        if level <= 0:
            level, since = 0.0, grant.at
        level += grant.amount
        before = grant.at
        most = limit + CLOCK_S * limit / PERIOD_S + 1
        most += ALL * share(limit) * sum(span.meets(Span(since, grant.at)) for span in away)
        if level > most:
            for_s = grant.at - since
            yield f"{level:.0f} of {limit} a minute, {most:.0f} at most, in {for_s:.1f} s to {grant.id}"


def slots(found: Evidence) -> Iterator[str]:
    """How many of a tenant's requests were at workers at once."""
    for tenant, limits in TENANTS.items():
        if limit := limits.get("max_concurrency"):
            yield from (
                f"{tenant}: {text}" for text in over_slots(_stays(found, tenant), limit, found.outages)
            )


def _stays(found: Evidence, tenant: str) -> list[Span]:
    """From when a worker had a request until it, the gateway or the caller was done with it."""
    stays = []
    for call in found.calls:
        for name in call.attempts if call.wish.tenant == tenant else ():
            ends = [line.ended_at for line in found.lines_of[name]] + [call.ended_at]
            stays += [
                Span(visit.came_at, min(*ends, found.died_at(visit)) - END_S)
                for visit in found.visits_of[name]
            ]
    return [stay for stay in stays if stay.end > stay.begin]


def over_slots(stays: list[Span], limit: int, outages: Iterable[Span]) -> Iterator[str]:
    """Where there were more at once than the limit, and what processes may grant by themselves.

    An outage counts for as long as something that was begun in it goes on.
    """
    lasting = [
        Span(
            away.begin, max([away.end, *(stay.end for stay in stays if away.begin <= stay.begin <= away.end)])
        )
        for away in outages
    ]
    changes = sorted([(stay.begin, 1) for stay in stays] + [(stay.end, -1) for stay in stays])
    here = 0
    for at, by in changes:
        here += by
        is_away = any(span.begin <= at <= span.end for span in lasting)
        most = limit + (ALL - 1) * share(limit) * is_away
        if by > 0 and here > most:
            yield f"{here} at once at {at:.3f}, where {most} may be"

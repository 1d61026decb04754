"""Was everything given back, and did everything stop that nobody waited for any more?"""

import re
from collections.abc import Iterator

from benchmarks.chaos.answers import shown
from benchmarks.chaos.calls import Call
from benchmarks.chaos.evidence import KILLED, Evidence, Line, Span
from benchmarks.chaos.plan import TENANTS
from benchmarks.chaos.script import PROBE, prompt_tokens
from benchmarks.chaos.visits import Visit

_RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\d )", re.MULTILINE)  # of the log, each may have several lines
TOLD_S = 2.0  # until all processes know that a worker gets nothing new
UNFLUSHED_S = 3.0  # of usage and of the log that a process may take with it, on a busy machine


def leases(found: Evidence) -> Iterator[str]:
    if found.leases:
        yield f"{found.leases} leases are left in Redis"


def gauges(found: Evidence) -> Iterator[str]:
    yield from (f"{name} is {value:g}" for name, value in found.gauges.items() if value)


def departures(found: Evidence) -> Iterator[str]:
    """Nothing is made for long after its caller was gone, unless nobody could tell the worker."""
    for call in found.calls:
        for visit in (visit for name in call.attempts for visit in found.visits_of[name]):
            after = Span(call.ended_at, found.died_at(visit))
            deaf = found.spans("worker stopped", "stall", whom=visit.worker)
            late_s = after.end - after.begin - sum(after.within(span) for span in deaf)
            if late_s > found.plan.stop_s:
                yield f"{shown(call)}: {visit.worker} worked on for {late_s:.1f} s, {visit.tokens} tokens"


def usage(found: Evidence) -> Iterator[str]:
    """Redis has what the log has, but for what was under way to either when a process was killed."""
    for tenant in TENANTS:
        lines = [line for line in found.lines if line.tenant == tenant]
        lost = [line for line in lines if _may_be_lost(line, found)]
        unlogged = [call for call in _unlogged(found) if call.wish.tenant == tenant]
        has, logged = found.usage[tenant], (len(lines), _charged(lines))
        less = (len(lost), _charged(lost))
        more = (sum(len(call.attempts) for call in unlogged), sum(map(_most_tokens, unlogged)))
        for index, what in enumerate(("requests", "tokens")):
            if not logged[index] - less[index] <= has[index] <= logged[index] + more[index]:
                yield (
                    f"{tenant}: {has[index]} {what} in Redis, {logged[index]} in the log; "
                    f"{less[index]} may be lost there, {more[index]} here"
                )


def _charged(lines: list[Line]) -> int:
    return sum(line.charged or 0 for line in lines)


def _most_tokens(call: Call) -> int:
    """That any of its requests can have been charged with. Estimates are above what workers count."""
    return len(call.attempts) * (2 * prompt_tokens(call.wish.prompt) + 16 + call.wish.max_tokens)


def _may_be_lost(line: Line, found: Evidence) -> bool:
    """A process of its replica was killed before it can have told Redis."""
    for kill in found.spans(KILLED, whom=str(line.replica)):
        told_at = line.ended_at + UNFLUSHED_S
        for away in found.outages:
            if away.begin <= told_at and line.ended_at <= away.end:
                told_at = max(told_at, away.end + UNFLUSHED_S)
        if line.ended_at <= kill.begin <= told_at:
            return True
    return False


def _unlogged(found: Evidence) -> list[Call]:
    """Calls that a process may have counted and did not log."""
    return [
        call
        for call in found.calls
        if any(not found.lines_of[name] for name in call.attempts)
        and found.was_killed(call.replica, Span(call.begun_at, call.ended_at + UNFLUSHED_S))
    ]


def lines(found: Evidence) -> Iterator[str]:
    """Each request that was answered is in the log, once."""
    for name, told in found.lines_of.items():
        if len(told) > 1:
            yield f"{name} is in the log {len(told)} times"
    excused = {id(call) for call in _unlogged(found)}
    for call in found.calls:
        if call.is_hostile or id(call) in excused or not call.attempts:
            continue
        last = call.attempts[-1]
        if (call.status or found.visits_of[last]) and not found.lines_of[last]:
            yield f"{shown(call)} is not in the log"


def drained(found: Evidence) -> Iterator[str]:
    """A worker that gets nothing new gets nothing new, once all have been told."""
    for mishap in found.mishaps:
        span = Span(mishap.at + TOLD_S, mishap.until)
        if mishap.kind != "worker drained" or mishap.detail != "status 200":
            continue
        if any(away.meets(Span(mishap.at, mishap.until)) for away in found.outages):
            continue
        yield from (
            f"{visit.request_id} came to {visit.worker} {visit.came_at - mishap.at:.1f} s after its drain"
            for visit in found.visits
            if _came(visit, mishap.whom, span)
        )


def _came(visit: Visit, worker: str, span: Span) -> bool:
    return visit.worker == worker and span.begin <= visit.came_at <= span.end


def endings(found: Evidence) -> Iterator[str]:
    """Replicas end well when told to, and serve well once all is over."""
    for mishap in found.mishaps:
        if mishap.kind == "replica restarted" and mishap.detail != "exit status 0":
            yield f"replica {mishap.whom} was restarted: {mishap.detail}"
    for number, status in enumerate(found.statuses):
        if status:
            yield f"replica {number} ended with status {status}"
    for call in found.calls:
        if call.wish.id.startswith(PROBE) and not call.is_success:
            yield f"{shown(call)}, when all was well again"


def bugs(found: Evidence) -> Iterator[str]:
    """What no fault of others excuses."""
    yield from (f"{line.id}: internal_error" for line in found.lines if line.outcome == "internal_error")
    for record in _RECORD.split(found.said):
        if "Traceback (most recent call last)" in record:
            said = [line.strip(" |+-") for line in record.splitlines()]
            yield f"{said[0]} … {[line for line in said if line][-1]}"

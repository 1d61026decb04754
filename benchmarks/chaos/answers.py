"""Was each answer the worker's, whole or told to be none?"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.chaos import script
from benchmarks.chaos.calls import GAVE_UP, LEFT, Call
from benchmarks.chaos.evidence import Evidence, Span
from benchmarks.chaos.script import NOT_BEGUN, Manner
from benchmarks.chaos.visits import Visit

RACE_S = 0.1  # between a request and the end of the connection that it was sent on
REFUSALS = (429, 502, 503, 504)  # of a request with which nothing is wrong


def shown(call: Call) -> str:
    """What a reader needs to find it in the logs."""
    return (
        f"{call.wish.id} ({call.by}, {call.wish.tenant}, replica {call.replica}, "
        f"{'stream' if call.wish.stream else 'plain'}): {call.status} {call.outcome}"
    )


def complete(found: Evidence) -> Iterator[str]:
    """Each success has just what the script says; of what broke off, all that came is its beginning."""
    for call in found.calls:
        if call.is_hostile:
            continue
        wish, name = call.wish, call.attempts[-1] if call.attempts else call.wish.id
        words = script.Words(name, wish.max_tokens, wish.prompt, chat=wish.chat)
        text = "".join(words.tokens)
        if call.is_success and not wish.stream:
            if call.body != words.plain():
                yield f"{shown(call)}, and the body is not the worker's: {call.body[:200]!r}"
        elif call.is_success:
            if (call.text, call.finish_reason) != (text, script.finish_reason(name, wish.max_tokens)):
                yield f"{shown(call)}, and it said {call.text!r} in place of {text!r}"
            if call.usages != wish.with_usage:
                yield f"{shown(call)}, and usage was told {call.usages} times"
        elif not text.startswith(call.text):
            yield f"{shown(call)}, and {call.text!r} is not how {text!r} begins"


def not_invented(found: Evidence) -> Iterator[str]:
    """An end that a caller saw is one that one worker said, once."""
    for call in found.calls:
        if not (call.is_success or call.done or call.finish_reason) or call.is_hostile:
            continue
        visits = found.visits_of[call.attempts[-1]]  # of the attempt that was answered
        said = sum(visit.is_done for visit in visits)
        if said != 1:
            yield f"{shown(call)}, and {said} workers said its end, of {[visit.how for visit in visits]}"


def not_repeated(found: Evidence) -> Iterator[str]:
    """No worker gets what another one may have begun."""
    for name, visits in found.visits_of.items():
        for before, after in itertools.pairwise(visits):
            if before.manner not in NOT_BEGUN and not _was_closing(before):
                yield (
                    f"{name} came to {after.worker} {after.came_at - before.came_at:.3f} s after "
                    f"{before.worker} had it, with {before.tokens} tokens made and {before.how or 'killed'}"
                )


def _was_closing(visit: Visit) -> bool:
    """Whether its connection was being closed as the request came: then nothing can have been made of it."""
    return visit.how == "left" and not visit.tokens and (visit.ended_at or 0.0) - visit.came_at < RACE_S


def typed(found: Evidence) -> Iterator[str]:
    """What is no success is an error object with its id, or a connection of a process that was killed."""
    for call in found.calls:
        if call.is_success or call.broke == LEFT:
            if call.is_hostile and call.is_success:
                yield f"{shown(call)}: it was served"
        elif problem := _problem(call, found):
            yield f"{shown(call)}: {problem}"


def _problem(call: Call, found: Evidence) -> str:
    if call.broke == GAVE_UP:
        return "it never ended"
    if call.broke:
        return "" if _is_explained(call, found) else call.broke
    if call.error is None:
        return "" if call.status == 200 and _was_unended(call, found) else "no error object"
    return _fault_of(call.error, call)


def _fault_of(error: dict[str, Any], call: Call) -> str:
    """What is wrong with how a caller was told; "" for nothing."""
    # 503 comes before all else: of a replica that ends, or where no key can be looked up.
    due = (call.expected, 503) if call.is_hostile else (200, *REFUSALS)
    faults = {
        f"no proper error object: {json.dumps(error)}": not _is_proper(error),
        f"one of {due} was due: {json.dumps(error)}": call.status not in due,
        f"the answer is of {call.answered_id!r}": not call.is_hostile
        and call.answered_id != call.attempts[-1],
        f"the error in the stream does not tell the id: {json.dumps(error)}": call.status == 200
        and call.answered_id not in str(error.get("message")),
    }
    return "; ".join(fault for fault, is_so in faults.items() if is_so)


def _is_proper(error: dict[str, Any]) -> bool:
    return all(isinstance(error.get(member), str) for member in ("message", "type", "code"))


def _is_explained(call: Call, found: Evidence) -> bool:
    """Why a connection broke."""
    span = Span(call.begun_at, call.ended_at)
    if found.was_killed(call.replica, span):
        return True
    if call.status == 0:  # a replica that ends takes nothing new
        restarts = found.spans("replica restarted", whom=str(call.replica))
        return any(restart.meets(span) for restart in restarts)
    # The worker broke off in the middle of a body that is not streamed: there is no other way to tell.
    lines = found.lines_of[call.attempts[-1]]
    return not call.wish.stream and bool(lines) and lines[-1].outcome != "ok"


def _was_unended(call: Call, found: Evidence) -> bool:
    visits = found.visits_of[call.attempts[-1]]
    return bool(visits) and visits[-1].how == Manner.UNENDED

"""Evidence as a run without any fault would give it, for tests to spoil."""

from dataclasses import replace
from typing import Any

from benchmarks.chaos.calls import Call, Wish
from benchmarks.chaos.evidence import Evidence, Line
from benchmarks.chaos.mischief import Mishap
from benchmarks.chaos.plan import TENANTS, Plan
from benchmarks.chaos.script import Words, finish_reason
from benchmarks.chaos.visits import Visit

WISH = Wish("c1", "open", chat=True, stream=True, max_tokens=8, prompt="Well?", with_usage=True)
WORDS = Words("c1", 8, "Well?", chat=True)
TEXT = "".join(WORDS.tokens)
USED = 2 + len(WORDS.tokens)  # prompt and answer
ERROR = {"message": "Not now.", "type": "server_error", "param": None, "code": "draining"}


def call(**more: Any) -> Call:
    """A stream that was answered well, from second 10 to 11."""
    made = Call(
        WISH, "raw", 0, 10.0, 11.0, 10.2, 200, "c1", text=TEXT, done=True, usages=1, attempts=["c1"],
        finish_reason=finish_reason("c1", 8),
    )  # fmt: skip
    return replace(made, **more)


def plain(**more: Any) -> Call:
    """The same, not streamed."""
    wish = replace(WISH, stream=False, with_usage=False)
    answer = {"wish": wish, "text": "", "finish_reason": None, "usages": 0, "body": WORDS.plain()}
    return call(**{**answer, **more})


def refused(**more: Any) -> Call:
    """A call that was answered with an error."""
    nothing = {"status": 503, "text": "", "finish_reason": None, "done": False, "usages": 0, "first_at": None}
    return call(**{**nothing, "error": ERROR, **more})


def visit(**more: Any) -> Visit:
    return replace(Visit("w0", "c1", 10.1, "well", 10.2, 10.9, len(WORDS.tokens), "done"), **more)


def line(**more: Any) -> Line:
    return replace(Line(0, "c1", "open", 10.0, 11.0, 200, "ok", 0, USED, 2), **more)


def mishap(kind: str, whom: str, at: float, until: float, detail: str = "") -> Mishap:
    return Mishap(kind, whom, at, until, detail)


def found(**more: Any) -> Evidence:
    """Of one call, unless told otherwise."""
    usage = {tenant: (0, 0) for tenant in TENANTS} | {"open": (1, USED)}
    gauges = {"gateway_in_flight of replica 0": 0.0}
    made = Evidence(Plan(), [call()], [visit()], [line()], [], 0, gauges, usage, [0, 0])
    return replace(made, **more)

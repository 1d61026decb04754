"""Which part of a request's time is whose? Measured rooms, and the rest as what they leave of the whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from benchmarks.overhead.requests import STREAM_TOKENS

Times = Mapping[str, float]  # microseconds, by the benchmark's name

CALLER = "caller's connection: request read, task, answer written"
WAIT = "wait for the worker, once"
PLAIN = {  # row: benchmark; in the order in which a request meets them
    CALLER: "caller",
    "corridor: the record, the exchange, from room to room": "corridor",
    "authenticate": "recognise",
    "read the body: decode, check, size, edit": "intake",
    "limits: take, settle": "limits",
    "admission: enter, leave": "admission",
    "choose one of 2 workers, take and give back the place": "place[2]",
    "worker's connection: request written, answer read": "worker",
    "relay the answer, read its usage": "relay",
    "learn from its usage": "learn",
    "accounting: metrics, usage, log line": "accounting",
}
WITHIN_PLAIN = {  # a part of a row above: benchmark
    "caller": {"the task": "task", "the answer": "answer"},
    "place[2]": {"one of 16 in its stead": "place[16]"},
    "worker": {"the answer": "reader"},
}
PLAIN_REST = "the rest: event loop, writes put off, cold caches"
CHUNK_REST = "the rest: event loop, the worker's stand-in"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a budget. share: of the last row, which is the whole."""

    budget: str
    name: str
    us: float
    share: float
    within: bool = False  # a part of, or in place of, the last row that is not; the sum is without it

    def kept(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def lines(times: Times) -> list[Line]:
    """All budgets. Raises KeyError where a benchmark is missing."""
    return [*_plain(times), *_chunk(times), *_company(times)]


def tables(found: Sequence[Line]) -> Iterator[Table]:
    """A table for each budget, for people."""
    for budget in dict.fromkeys(line.budget for line in found):
        shown = Table(title=budget, title_justify="left")
        shown.add_column("room", style="cyan")
        shown.add_column("µs", justify="right")
        shown.add_column("share", justify="right")
        for line in found:
            if line.budget == budget:
                name = f"  … {line.name}" if line.within else line.name
                shown.add_row(name, f"{line.us:.2f}", f"{line.share:.0%}")
        yield shown


def _plain(times: Times) -> Iterator[Line]:
    budget, whole = "a plain request", times["whole_plain"]
    parts = 0.0
    for name, key in PLAIN.items():
        parts += times[key]
        yield Line(budget, name, times[key], times[key] / whole)
        for part, of in WITHIN_PLAIN.get(key, {}).items():
            yield Line(budget, part, times[of], times[of] / whole, within=True)
    wait = times["waiting_task"] - times["task"]
    yield Line(budget, WAIT, wait, wait / whole)
    yield from _end(budget, PLAIN_REST, parts + wait, whole)


def _chunk(times: Times) -> Iterator[Line]:
    """Of a stream of so many, whose beginning and end are shared out among them."""
    budget = f"a streamed chunk, one of {STREAM_TOKENS}"
    whole = times[f"whole_stream[{STREAM_TOKENS}]"] / STREAM_TOKENS
    around = times["whole_stream[0]"] / STREAM_TOKENS
    relay = times["relay_stream"] / STREAM_TOKENS
    pour, frames, watch = times["pour"], times["chunks"], times["watch"]
    yield Line(budget, "begin and end the stream: its share", around, around / whole)
    yield Line(budget, "in the relay", relay, relay / whole, within=True)
    yield Line(budget, "from the worker's connection to the caller's", pour, pour / whole)
    yield Line(budget, "read HTTP's frame", frames, frames / whole, within=True)
    yield Line(budget, "look at the event", watch, watch / whole, within=True)
    yield from _end(budget, CHUNK_REST, around + pour, whole)


def _company(times: Times) -> Iterator[Line]:
    """Of all rooms but the caller's connection: does it matter that others come in between?"""
    budget, together = "rooms alone and in company", times["together"]
    alone = sum(times[key] for name, key in PLAIN.items() if name != CALLER)
    yield Line(budget, "each room alone, again and again", alone, alone / together)
    yield Line(budget, "one after the other, request by request", together, 1.0)


def _end(budget: str, name: str, parts: float, whole: float) -> Iterator[Line]:
    rest = whole - parts
    yield Line(budget, name, rest, rest / whole)
    yield Line(budget, "the whole, without sockets", whole, 1.0)

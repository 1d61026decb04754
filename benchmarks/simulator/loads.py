"""What was sent to the measured workers, and what would the engine have made of it?

The loads and percentiles are those of the tool that took the measurements, so that the figures compare.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from statistics import fmean

from benchmarks.simulator.engine import Engine
from benchmarks.simulator.request import Event, Request

LONG_SHARE = 0.1
LONG_PROMPT_TOKENS = (8_000, 24_000)
SHORT_PROMPT_TOKENS = (50, 800)
OUTPUT_TOKENS = (50, 200)

Timings = list["Timing"]
Policy = Callable[[Sequence[Engine]], int]  # the worker for a request, by its index


@dataclass(slots=True)
class Timing:
    """Of one request; all times on the load's clock."""

    output_tokens: int
    is_long: bool
    sent_s: float
    first_s: float = math.nan
    last_s: float = math.nan

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.last_s - self.sent_s

    @property
    def tpot_s(self) -> float:
        return (self.last_s - self.first_s) / max(1, self.output_tokens - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """The value at this place of the sorted ones, without interpolation."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def figures(timings: Timings) -> dict[str, float]:
    """Under the names of the measurements."""
    ttft, e2e, tpot = ([getattr(t, name) for t in timings] for name in ("ttft_s", "e2e_s", "tpot_s"))
    wall_s = max(t.last_s for t in timings) - min(t.sent_s for t in timings)
    return {
        "out_tok_s": sum(t.output_tokens for t in timings) / wall_s,
        "ttft_mean": fmean(ttft),
        "ttft_p50": quantile(ttft, 0.5),
        "ttft_p99": quantile(ttft, 0.99),
        "e2e_p50": quantile(e2e, 0.5),
        "e2e_p99": quantile(e2e, 0.99),
        "tpot_p50_ms": 1e3 * quantile(tpot, 0.5),
        "tpot_p99_ms": 1e3 * quantile(tpot, 0.99),
    }


class Diary:
    """What became of the requests."""

    def __init__(self) -> None:
        self.timings: Timings = []
        self._open: dict[Request, Timing] = {}

    def send(self, engine: Engine, request: Request, now_s: float, is_long: bool = False) -> None:
        timing = self._open[request] = Timing(request.output_tokens, is_long, now_s)
        self.timings.append(timing)
        engine.submit(request, now_s)

    def note(self, event: Event) -> None:
        timing = self._open[event.request]
        if event.tokens == 1:
            timing.first_s = event.time_s
        if event.finished:
            timing.last_s = event.time_s
            del self._open[event.request]


def closed_loop(
    engine: Engine, streams: int, requests: int, prompt_tokens: int, output_tokens: int
) -> Timings:
    """Each stream sends its next request when it has its last answer."""
    diary = Diary()
    left = repeat((prompt_tokens, output_tokens), requests)
    for sizes in islice(left, streams):
        diary.send(engine, Request(*sizes), 0.0)
    for event in engine.advance(math.inf):
        diary.note(event)
        if event.finished:
            for sizes in islice(left, 1):
                diary.send(engine, Request(*sizes), event.time_s)
    return diary.timings


@dataclass(frozen=True, slots=True)
class Arrival:
    time_s: float
    request: Request
    is_long: bool


def mixed_arrivals(rate_per_s: float, duration_s: float, seed: int) -> Iterator[Arrival]:
    """Poisson arrivals with long prompts among short ones: for the same seed the measured requests."""
    drawn = random.Random(seed)
    time_s = 0.0
    while time_s < duration_s:
        time_s += drawn.expovariate(rate_per_s)
        is_long = drawn.random() < LONG_SHARE
        prompt = int(drawn.uniform(*(LONG_PROMPT_TOKENS if is_long else SHORT_PROMPT_TOKENS)))
        yield Arrival(time_s, Request(prompt, int(drawn.uniform(*OUTPUT_TOKENS))), is_long)


def open_loop(engines: Sequence[Engine], policy: Policy, arrivals: Iterator[Arrival]) -> Timings:
    """Each request is sent at its time, to the worker that the policy names."""
    diary = Diary()
    for arrival in arrivals:
        for engine in engines:
            _follow(diary, engine, arrival.time_s)
        diary.send(engines[policy(engines)], arrival.request, arrival.time_s, arrival.is_long)
    for engine in engines:
        _follow(diary, engine, math.inf)
    return diary.timings


def _follow(diary: Diary, engine: Engine, until_s: float) -> None:
    for event in engine.advance(until_s):
        diary.note(event)


class RoundRobin:
    """From the second worker on, as the measuring tool did it."""

    def __init__(self) -> None:
        self._turn = 0

    def __call__(self, engines: Sequence[Engine]) -> int:
        self._turn += 1
        return self._turn % len(engines)


class LeastRequests:
    """The worker with the fewest requests in it; ties at random."""

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)

    def __call__(self, engines: Sequence[Engine]) -> int:
        counts = [engine.running + engine.waiting for engine in engines]
        fewest = min(counts)
        return self._drawn.choice([index for index, count in enumerate(counts) if count == fewest])

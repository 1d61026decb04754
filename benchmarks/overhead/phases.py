"""What is asked of each gateway, and what makes its figures invalid? One function a phase."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead import caller, wrk
from benchmarks.overhead.contenders import FLOOD, PLAIN, QUARTER, SCALING, STREAM, Contender, Target
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.requests import PLAIN_TOKENS, STREAM_TOKENS, body, wired
from benchmarks.overhead.stand import Workers, metered
from benchmarks.overhead.worker import Counts

INTERVAL_S = 0.005  # between two tokens of a stream
MAX_RATE_PER_S = 5000.0  # that one caller can keep to beside the workers; only nginx's quarter is more
MIN_RATE_PER_S = 1.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of all phases."""

    seconds: int  # of each load; the flood's last wave goes on to its end
    flood_tokens: int  # of each of its streams


@dataclass(frozen=True, slots=True)
class Turn:
    """What a phase has to do with: one contender, as it runs now."""

    contender: Contender
    target: Target
    workers: Workers
    plan: Plan
    folder: Path
    number: int  # of the round, which is the seed
    before: Mapping[str, Figures]  # of its phases so far

    def load(self, connections: int, *, seconds: int | None = None, streamed: bool = False) -> wrk.Load:
        """As fast as it goes."""
        content = body(STREAM_TOKENS if streamed else PLAIN_TOKENS, stream=streamed)
        key, url = self.target.key, self.target.url
        return wrk.saturate(url, key, content, connections, seconds or self.plan.seconds, self.folder)

    def connections(self, phase: str) -> int:
        return self.contender.connections[phase]


def plain(turn: Turn, phase: str = PLAIN) -> Figures:
    """Requests as fast as they are answered."""
    connections = turn.connections(phase)
    load, spent = metered(turn.target, turn.workers, lambda: turn.load(connections))
    check_seen(spent.seen, load.requests, connections)
    return {
        **spent.cost(load.requests, load.seconds),
        "requests": load.requests,
        "requests_per_s": load.requests / load.seconds,
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
    }


def stream(turn: Turn) -> Figures:
    """Streams at a pace that leaves a gateway time: what a chunk costs that comes alone."""
    connections = turn.connections(STREAM)
    turn.workers.pace(INTERVAL_S)
    load, spent = metered(turn.target, turn.workers, lambda: turn.load(connections, streamed=True))
    check_seen(spent.seen, load.requests, connections)
    if spent.seen.whole_streams < load.requests:
        raise Invalid(f"{load.requests} streams ended, but only {spent.seen.whole_streams} at the workers")
    return {
        **spent.cost(spent.seen.chunks, load.seconds),
        "chunks": spent.seen.chunks,
        "chunks_per_s": spent.seen.chunks / load.seconds,
        "streams": load.requests,
    }


def flood(turn: Turn) -> Figures:
    """Many streams at once, as fast as they go through: what a processor can do at most."""
    tokens, at_once = turn.plan.flood_tokens, turn.connections(FLOOD)
    turn.workers.pace(0)
    request = wired(turn.target.url, turn.target.key, body(tokens, stream=True))

    def waves() -> tuple[int, float]:
        """How many, and how many seconds they took."""
        made, seconds = 0, 0.0
        while seconds < turn.plan.seconds:
            seconds += caller.at_once(turn.target.url, request, tokens, at_once)
            made += 1
        return made, seconds

    (made, seconds), spent = metered(turn.target, turn.workers, waves)
    streams = made * at_once
    seen, chunks = spent.seen, streams * tokens
    if (seen.requests, seen.whole_streams, seen.chunks) != (streams, streams, chunks):
        raise Invalid(
            f"for {streams} streams of {chunks} chunks in all the workers have seen {seen.requests} "
            f"requests, and sent {seen.whole_streams} whole streams and {seen.chunks} chunks"
        )
    cost = spent.cost(chunks, seconds)
    if not cost.get("cpu_us"):
        raise Invalid("the load was too small to be measured")
    return {
        **cost,
        "chunks": chunks,
        "chunks_per_s": chunks / seconds,
        "chunks_per_core_s": 1e6 / cost["cpu_us"],
    }


def quarter(turn: Turn) -> Figures:
    """Requests that come at random, a quarter of what it can do: latencies, and those without a gateway."""
    rate_per_s = min(max(turn.before[PLAIN]["requests_per_s"] / 4, MIN_RATE_PER_S), MAX_RATE_PER_S)

    def called(url: str) -> caller.Latencies:
        request = wired(url, turn.target.key, body(PLAIN_TOKENS, stream=False))
        return caller.at_rate(
            url,
            request,
            PLAIN_TOKENS,
            rate_per_s,
            turn.plan.seconds,
            connections=turn.connections(QUARTER),
            seed=turn.number,
        )

    latencies, spent = metered(turn.target, turn.workers, lambda: called(turn.target.url))
    check_seen(spent.seen, len(latencies.takes_s), 0)
    direct = called(turn.workers.urls[0])
    return {
        **spent.cost(len(latencies.takes_s), turn.plan.seconds),
        "rate_per_s": rate_per_s,
        "p50_ms": latencies.p50_ms,
        "p99_ms": latencies.p99_ms,
        "direct_p50_ms": direct.p50_ms,
        "direct_p99_ms": direct.p99_ms,
        "added_p50_ms": latencies.p50_ms - direct.p50_ms,
        "added_p99_ms": latencies.p99_ms - direct.p99_ms,
        "late_p99_ms": latencies.late_p99_ms,
    }


def scaling(turn: Turn) -> Figures:
    """The plain load again, for so many processes: requests a second if each had a processor of its own."""
    figures = plain(turn, SCALING)
    if not figures.get("cpu_us"):
        raise Invalid("the load was too small to be measured")
    return figures | {"predicted_per_s": turn.contender.processes * 1e6 / figures["cpu_us"]}


def check_seen(seen: Counts, answered: int, cut_off: int) -> None:
    """Each answer came from a worker, and no request came twice. Raises Invalid.

    cut_off: at most so many more had been sent when callers hung up.
    """
    if not answered <= seen.requests <= answered + cut_off:
        raise Invalid(f"{answered} answers, but the workers have seen {seen.requests} requests")


RUN: Mapping[str, Callable[[Turn], Figures]] = {
    PLAIN: plain,
    STREAM: stream,
    FLOOD: flood,
    QUARTER: quarter,
    SCALING: scaling,
}

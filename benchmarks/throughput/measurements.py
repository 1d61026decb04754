"""How many tokens a second come straight from a worker, and how many through the gateway?

The same callers offer the same streams each way, in turn, so that what drifts meets all. Answers differ in
length: streams that all began together and were equally long would go on ending together, and the worker
would prefill all prompts between two waves of tokens, as it never can among real callers. Tokens are those
that the worker itself counts. A gateway that sends everybody on at once is measured too: what it differs by
is the relaying, without who waits. Then one caller alone asks each way in turn for a few tokens: what the
gateway adds to the time to first token.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice, product, repeat
from pathlib import Path
from typing import Literal

import uvloop

from benchmarks.routing.arms import ARMS, running_arm
from benchmarks.routing.caller import Answer, NotServed, in_turn, saturate
from benchmarks.routing.loads import ONE_TENANT, Call
from benchmarks.routing.workers import Engines, Workers, running_workers
from benchmarks.targets import Row

DIRECT, GATEWAY, OPEN = "straight to the worker", "through the gateway", "through the gateway, none waits"
_ARMS = {GATEWAY: ARMS["gateway:length_bucket"], OPEN: ARMS["gateway:length_bucket:open"]}
RAMP_SHARE = 0.4  # of a load's time: until as many streams end as begin, and the gateway has found its limit
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly however many are taken
ALONE_TOKENS = 8  # of output, when one caller asks alone
LEAST_RATIO = 0.99  # of the tokens that come straight, at any number of streams
CROWD = 256  # streams, from which on holding some back should win tokens
MOST_TPOT_RATIO = 1.01
MOST_ADDED_MS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    streams: tuple[int, ...]  # offered at once, one number after the other
    prompt_tokens: int
    output_tokens: int  # on average
    spread: float  # of output tokens: at most this part more or fewer than on average
    seconds: float  # of each load
    rounds: int
    alone: int  # calls of one caller, each way and in each round


@dataclass(frozen=True, slots=True)
class Round:
    """What one round told, by where the callers asked, and by how many streams were offered."""

    tokens_per_s: dict[str, dict[int, float]]
    tpot_s: dict[str, dict[int, float]]  # per output token after the first; the median
    ttft_s: dict[str, float]  # the median of a caller alone


def measure(plan: Plan, engines: Engines, say: Callable[[str], None]) -> list[Round]:
    """Raises ServiceFailed, NotServed, OSError or httpx.HTTPError. say: is told what is measured."""
    with _both(engines) as (workers, ways):
        rounds = []
        for number in range(1, plan.rounds + 1):
            taken = Round({way: {} for way in ways}, {way: {} for way in ways}, {})
            for streams, (way, (url, key)) in product(plan.streams, ways.items()):
                say(f"round {number} of {plan.rounds}: {streams} streams, {way}")
                load = _under_load(plan, streams, engines.model, url, key, workers)
                taken.tokens_per_s[way][streams], taken.tpot_s[way][streams] = uvloop.run(load)
            for way, (url, key) in ways.items():
                taken.ttft_s[way] = uvloop.run(_alone_s(plan, engines.model, url, key, number))
            rounds.append(taken)
        return rounds


def rows(rounds: list[Round]) -> list[Row]:
    """Medians over the rounds; ratios and differences are taken within each."""

    def median(of: Callable[[Round], float]) -> float:
        return statistics.median(of(each) for each in rounds)

    return [
        *(row for streams in rounds[0].tokens_per_s[DIRECT] for row in _of(streams, median)),
        Row("TTFT of a caller alone, straight", median(lambda each: each.ttft_s[DIRECT]) * 1e3, "ms"),
        Row(
            "TTFT that the gateway adds for a caller alone",
            median(lambda each: each.ttft_s[GATEWAY] - each.ttft_s[DIRECT]) * 1e3,
            "ms",
            at_most=MOST_ADDED_MS,
        ),
    ]


def _of(streams: int, median: Callable[[Callable[[Round], float]], float]) -> list[Row]:
    def tokens(way: str) -> float:
        return median(lambda each: each.tokens_per_s[way][streams])

    def tpot_ms(way: str) -> float:
        return median(lambda each: each.tpot_s[way][streams]) * 1e3

    def ratio(figure: Literal["tokens_per_s", "tpot_s"], way: str) -> float:
        def of(each: Round) -> float:
            found: dict[str, dict[int, float]] = getattr(each, figure)
            return found[way][streams] / found[DIRECT][streams]

        return median(of)

    return [
        Row(f"{streams} streams: output tokens/s, straight", tokens(DIRECT)),
        Row(f"{streams} streams: output tokens/s, through the gateway", tokens(GATEWAY)),
        Row(
            f"{streams} streams: output tokens, through the gateway / straight",
            ratio("tokens_per_s", GATEWAY),
            at_least=1.0 if streams >= CROWD else LEAST_RATIO,
        ),
        Row(f"{streams} streams: time per output token, straight", tpot_ms(DIRECT), "ms"),
        Row(
            f"{streams} streams: time per output token, through the gateway / straight",
            ratio("tpot_s", GATEWAY),
            at_most=MOST_TPOT_RATIO,
        ),
        Row(f"{streams} streams: output tokens, none waits / straight", ratio("tokens_per_s", OPEN)),
        Row(f"{streams} streams: time per output token, none waits / straight", ratio("tpot_s", OPEN)),
    ]


async def _under_load(
    plan: Plan, streams: int, model: str, url: str, key: str, workers: Workers
) -> tuple[float, float]:
    """Output tokens a second, and the median of seconds per token."""
    tpots_s: list[float] = []

    def note(answer: Answer) -> None:
        if answer.tpot_s is not None:
            tpots_s.append(answer.tpot_s)

    calls = (_call(plan, tokens) for tokens in output_tokens(plan))
    async with asyncio.timeout(2 * plan.seconds), asyncio.TaskGroup() as group:
        load = group.create_task(saturate(url, key, model, calls, streams, plan.seconds, note))
        await asyncio.sleep(RAMP_SHARE * plan.seconds)
        began_s, before = asyncio.get_running_loop().time(), await asyncio.to_thread(workers.generated_tokens)
        await asyncio.sleep(0.95 * (1 - RAMP_SHARE) * plan.seconds)
        ended_s, after = asyncio.get_running_loop().time(), await asyncio.to_thread(workers.generated_tokens)
        await load
    if not tpots_s:
        raise NotServed(f"no answer was whole within {plan.seconds:g} s")
    return (after - before) / (ended_s - began_s), statistics.median(tpots_s)


async def _alone_s(plan: Plan, model: str, url: str, key: str, seed: int) -> float:
    calls = islice(repeat(_call(plan, ALONE_TOKENS)), plan.alone)
    answers = await in_turn(url, key, model, calls, seed)
    waits_s = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    if len(waits_s) < plan.alone:
        raise NotServed("a caller alone was not answered")
    return statistics.median(waits_s)


def output_tokens(plan: Plan) -> Iterator[int]:
    """Of one call after the other, without end: the same each time, and evenly spread."""
    for number in count():
        part = 2 * (number * _GOLDEN % 1) - 1
        yield max(1, round(plan.output_tokens * (1 + plan.spread * part)))


def _call(plan: Plan, output_tokens: int) -> Call:
    return Call(0.0, ONE_TENANT, "short", plan.prompt_tokens, output_tokens)


@contextmanager
def _both(engines: Engines) -> Iterator[tuple[Workers, dict[str, tuple[str, str]]]]:
    """A worker, and where and with which key callers ask."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="throughput-")))
        workers = stack.enter_context(running_workers(engines, place))
        [url] = workers.urls
        ways = {DIRECT: (url, "none")}
        for number, (way, arm) in enumerate(_ARMS.items()):
            (folder := place / str(number)).mkdir()
            target = stack.enter_context(running_arm(arm, engines.model, workers.urls, [ONE_TENANT], folder))
            ways[way] = target.url, target.keys[ONE_TENANT]
        yield workers, ways

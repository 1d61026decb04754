"""How many tokens a second come straight from a worker, and how many through the gateway?

The same callers offer the same streams to either, in turn, so that what drifts meets both. Tokens are those
that the worker itself counts. Then one caller alone asks either in turn for a few tokens: what the gateway
adds to the time to first token.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path

import uvloop

from benchmarks.routing.arms import ARMS, running_arm
from benchmarks.routing.caller import NotServed, in_turn, saturate
from benchmarks.routing.loads import ONE_TENANT, Call
from benchmarks.routing.workers import Engines, Workers, running_workers
from benchmarks.targets import Row

DIRECT, GATEWAY = "straight to the worker", "through the gateway"
ARM = ARMS["gateway:length_bucket"]
RAMP_SHARE = 0.4  # of a load's time: until as many streams end as begin, and the gateway has found its limit
ALONE_TOKENS = 8  # of output, when one caller asks alone
LEAST_RATIO = 1.15
MOST_ADDED_MS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    streams: int  # offered at once
    prompt_tokens: int
    output_tokens: int
    seconds: float  # of each load
    rounds: int
    alone: int  # calls of one caller, each way and in each round


@dataclass(frozen=True, slots=True)
class Round:
    """What one round told, by where the callers asked."""

    tokens_per_s: dict[str, float]
    ttft_s: dict[str, float]  # the median of a caller alone


def measure(plan: Plan, engines: Engines, say: Callable[[str], None]) -> list[Round]:
    """Raises ServiceFailed, NotServed, OSError or httpx.HTTPError. say: is told what is measured."""
    with _both(engines) as (workers, ways):
        rounds = []
        for number in range(1, plan.rounds + 1):
            tokens_per_s, ttft_s = {}, {}
            for way, (url, key) in ways.items():
                say(f"round {number} of {plan.rounds}: {way}")
                tokens_per_s[way] = uvloop.run(_tokens_per_s(plan, engines.model, url, key, workers))
            for way, (url, key) in ways.items():
                ttft_s[way] = uvloop.run(_alone_s(plan, engines.model, url, key, number))
            rounds.append(Round(tokens_per_s, ttft_s))
        return rounds


def rows(rounds: list[Round]) -> list[Row]:
    """Medians over the rounds; ratios and differences are taken within each."""

    def median(of: Callable[[Round], float]) -> float:
        return statistics.median(of(each) for each in rounds)

    return [
        *(
            Row(f"output tokens/s, {way}", median(lambda each, way=way: each.tokens_per_s[way]))  # type: ignore[misc]
            for way in (DIRECT, GATEWAY)
        ),
        Row(
            "output tokens, through the gateway / straight",
            median(lambda each: each.tokens_per_s[GATEWAY] / each.tokens_per_s[DIRECT]),
            at_least=LEAST_RATIO,
        ),
        Row("TTFT of a caller alone, straight", median(lambda each: each.ttft_s[DIRECT]) * 1e3, "ms"),
        Row(
            "TTFT that the gateway adds for a caller alone",
            median(lambda each: each.ttft_s[GATEWAY] - each.ttft_s[DIRECT]) * 1e3,
            "ms",
            at_most=MOST_ADDED_MS,
        ),
    ]


async def _tokens_per_s(plan: Plan, model: str, url: str, key: str, workers: Workers) -> float:
    async with asyncio.timeout(2 * plan.seconds), asyncio.TaskGroup() as group:
        load = group.create_task(
            saturate(url, key, model, repeat(_call(plan, plan.output_tokens)), plan.streams, plan.seconds)
        )
        await asyncio.sleep(RAMP_SHARE * plan.seconds)
        began_s, before = asyncio.get_running_loop().time(), await asyncio.to_thread(workers.generated_tokens)
        await asyncio.sleep(0.95 * (1 - RAMP_SHARE) * plan.seconds)
        ended_s, after = asyncio.get_running_loop().time(), await asyncio.to_thread(workers.generated_tokens)
        await load
    return (after - before) / (ended_s - began_s)


async def _alone_s(plan: Plan, model: str, url: str, key: str, seed: int) -> float:
    calls = islice(repeat(_call(plan, ALONE_TOKENS)), plan.alone)
    answers = await in_turn(url, key, model, calls, seed)
    waits_s = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    if len(waits_s) < plan.alone:
        raise NotServed("a caller alone was not answered")
    return statistics.median(waits_s)


def _call(plan: Plan, output_tokens: int) -> Call:
    return Call(0.0, ONE_TENANT, "short", plan.prompt_tokens, output_tokens)


@contextmanager
def _both(engines: Engines) -> Iterator[tuple[Workers, dict[str, tuple[str, str]]]]:
    """A worker, and where and with which key callers ask."""
    with (
        tempfile.TemporaryDirectory(prefix="throughput-") as place,
        running_workers(engines, Path(place)) as workers,
        running_arm(ARM, engines.model, workers.urls, [ONE_TENANT], Path(place)) as target,
    ):
        [url] = workers.urls
        yield workers, {DIRECT: (url, "none"), GATEWAY: (target.url, target.keys[ONE_TENANT])}

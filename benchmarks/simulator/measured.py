"""What was measured on GPUs, and what does the engine make of the same load?"""

import statistics
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.simulator.costs import Costs
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.loads import (
    LeastRequests,
    Policy,
    RoundRobin,
    closed_loop,
    figures,
    mixed_arrivals,
    open_loop,
)
from benchmarks.simulator.request import Limits

FILE = Path(__file__).with_name("h200.json")
RATE_PER_S, DURATION_S, SEED, WORKERS = 22.0, 25.0, 7, 2  # of the mixed load
TIE_SEEDS = range(11)  # how ties fall moves a p99 by some 20 %: the median of these counts

Figures = dict[str, float]
Kind = Literal["short", "long"]


class ClosedLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One worker, this many streams, each sending its next request when it has its last answer."""

    name: str
    streams: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    fitted: tuple[str, ...]  # the figures that the costs are fitted to
    measured: Figures

    def simulated(self, costs: Costs) -> Figures:
        engine = Engine(Limits(), costs)
        sizes = (self.prompt_tokens, self.output_tokens)
        return figures(closed_loop(engine, self.streams, self.requests, *sizes))


class Mixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two workers, long prompts among short ones; nothing is fitted to it."""

    name: str
    policy: Literal["round_robin", "least_requests"]
    long_prefill_token_threshold: int
    measured: dict[Kind, Figures]

    def simulated(self, costs: Costs) -> dict[Kind, Figures]:
        """Of each kind of request the median of the runs."""
        runs = [self._run(costs, policy) for policy in self._policies()]
        return {kind: medians([run[kind] for run in runs]) for kind in self.measured}

    def _policies(self) -> list[Policy]:
        if self.policy == "round_robin":
            return [RoundRobin()]
        return [LeastRequests(seed) for seed in TIE_SEEDS]

    def _run(self, costs: Costs, policy: Policy) -> dict[Kind, Figures]:
        limits = Limits(long_prefill_token_threshold=self.long_prefill_token_threshold)
        engines = [Engine(limits, costs) for _ in range(WORKERS)]
        timings = open_loop(engines, policy, mixed_arrivals(RATE_PER_S, DURATION_S, SEED))
        return {
            "short": figures([timing for timing in timings if not timing.is_long]),
            "long": figures([timing for timing in timings if timing.is_long]),
        }


class Measurements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    closed_loop_source: str
    mixed_source: str
    closed_loop: tuple[ClosedLoop, ...]
    mixed: tuple[Mixed, ...]

    @staticmethod
    def load(path: Path = FILE) -> "Measurements":
        return msgspec.json.decode(path.read_bytes(), type=Measurements)


def medians(runs: list[Figures]) -> Figures:
    """Figure by figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}

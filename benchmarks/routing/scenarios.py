"""Which questions are asked of the arms, and what are the answers held to?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.routing.kill import DOWN_S, GRACE_S, Kill
from benchmarks.routing.loads import arena, conversation, mixed
from benchmarks.routing.results import Runs
from benchmarks.routing.run import Course
from benchmarks.targets import Row

OURS = "gateway:length_bucket"
LEAST_WORK = "gateway:least_work"
WITHOUT_ADMISSION = f"{OURS}:open"
LEAST_REQUESTS = "gateway:least_requests:open"  # as others do it: all are sent on at once
ROUND_ROBIN = "gateway:round_robin:open"
VLLM_ROUND_ROBIN = "vllm-router:round_robin"
VLLM_CACHE_AWARE = "vllm-router:cache_aware"
VLLM_ROUTER = (VLLM_ROUND_ROBIN, "vllm-router:power_of_two", VLLM_CACHE_AWARE)
SGLANG = "sglang-router:cache_aware"

PATIENCE_S = 10.0
BUSY = 0.7  # of capacity: the mixed load
OVERLOADS = ("1.2", "1.5")
LOADS = ("0.5", "0.7", "0.9", "1.0", *OVERLOADS)
CONVERSATION_FACTOR = 3.0  # 9 calls a second: two thirds of what four workers read without a cache
ARENA_FACTOR = 6.0  # 15 calls a second: a third of what one worker writes
FLOOD_PER_S = 60.0  # more than it can, alone
CALM, FLOODED = "calm", "flooded"
CONVERSATION = "conversation"
KILLED = "a worker killed"

SHORT_P99 = "sizes.short.ttft_p99_s"
LONG_P99 = "sizes.long.ttft_p99_s"
MEAN = "sizes.all.ttft_mean_s"
GOODPUT = "goodput_rps"
OTHERS_P99 = "others.ttft_p99_s"
OTHERS_UNANSWERED = "others.unanswered_share"
KILL_ROWS = (  # name, figure, at most; where nobody may be lost, the worst seed counts
    ("short p99 TTFT while it is away / before", "down_to_before", None),
    (f"short p99 TTFT in the {GRACE_S:g} s after its return / before", "grace_to_before", None),
    ("short p99 TTFT from then on / before", "after_to_before", 1.5),
    ("lost, not mid-stream on it", "lost_otherwise", 0),
    ("of these unanswered on it", "unanswered_on_it", None),
    ("cut mid-stream on it", "cut_on_it", None),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all scenarios of an invocation have in common."""

    capacity_rps: float  # of the mixed load; NaN where no scenario asks
    seconds: float | None = None  # of each load after the warm-up; None: the scenario's own
    warm_up_s: float = 5.0
    traces: Path | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question."""

    question: str
    seconds: float
    loads: tuple[str, ...]
    arms: tuple[str, ...]  # where nobody names others
    course: Callable[[Setting, float, str, int], Course]  # of setting, seconds, load and seed
    rows: Callable[[Runs], list[Row]]
    by_capacity: bool = False
    workers: int | None = None  # None: as many as there are

    def seconds_of(self, setting: Setting) -> float:
        return self.seconds if setting.seconds is None else setting.seconds


def _mixed(setting: Setting, seconds: float, load: str, seed: int) -> Course:
    lasts_s = setting.warm_up_s + seconds
    calls = mixed(float(load) * setting.capacity_rps, lasts_s, seed)
    return Course(calls, lasts_s, setting.warm_up_s, PATIENCE_S)


def _conversation(setting: Setting, seconds: float, load: str, seed: int) -> Course:
    lasts_s = setting.warm_up_s + seconds
    calls = conversation(CONVERSATION_FACTOR, lasts_s, seed, setting.traces)
    return Course(calls, lasts_s, setting.warm_up_s, PATIENCE_S)


def _arena(setting: Setting, seconds: float, load: str, seed: int) -> Course:
    lasts_s = setting.warm_up_s + seconds
    flood_rate = FLOOD_PER_S if load == FLOODED else 0.0
    calls = arena(ARENA_FACTOR, lasts_s, seed, setting.traces, flood_rate)
    return Course(calls, lasts_s, setting.warm_up_s, PATIENCE_S)


def _kill(setting: Setting, seconds: float, load: str, seed: int) -> Course:
    """Half of the seconds before, and half after what is between the kill and the end of the grace."""
    at_s = setting.warm_up_s + seconds / 2
    lasts_s = at_s + DOWN_S + GRACE_S + seconds / 2
    calls = mixed(BUSY * setting.capacity_rps, lasts_s, seed)
    return Course(calls, lasts_s, setting.warm_up_s, PATIENCE_S, Kill(at_s))


def _against(
    runs: Runs,
    figure: str,
    name: str,
    load: str,
    rivals: Sequence[tuple[str, float | None]],
    ours: str = OURS,
) -> list[Row]:
    """A row for each rival that was measured, with what the ratio may be at most."""
    return [
        Row(f"{ours}: {name} / that of {rival}", runs.ratio(figure, (load, ours), [(load, rival)]), "", bound)
        for rival, bound in rivals
        if runs.has(load, ours, rival)
    ]


def _mixed_rows(runs: Runs) -> list[Row]:
    load = str(BUSY)
    short, long = "short p99 TTFT", "long p99 TTFT"
    rows = _against(runs, SHORT_P99, short, load, [(ROUND_ROBIN, 1 / 6), (LEAST_REQUESTS, 1 / 3)])
    best = [(load, rival) for rival in VLLM_ROUTER if runs.has(load, rival)]
    if best and runs.has(load, OURS):
        value = runs.ratio(SHORT_P99, (load, OURS), best)
        rows.append(Row(f"{OURS}: {short} / that of vllm-router's best policy", value, "", at_most=1 / 3))
    rows += _against(runs, LONG_P99, long, load, [(ROUND_ROBIN, 1.0)])
    others = ("gateway:round_robin", "gateway:least_requests", LEAST_WORK, *VLLM_ROUTER, SGLANG)
    return rows + _against(runs, SHORT_P99, short, load, [(other, None) for other in others])


def _overload_rows(runs: Runs) -> list[Row]:
    rows = []
    for arm, bound in ((OURS, 0.85), (LEAST_WORK, None), (WITHOUT_ADMISSION, None)):
        loads = [load for load in LOADS if runs.has(load, arm)]
        for load in OVERLOADS:
            if load in loads:
                best = [(each, arm) for each in loads]
                value = runs.ratio(GOODPUT, (load, arm), best, max)
                rows.append(
                    Row(f"{arm}: goodput at {load} / the best at any load", value, "", at_least=bound)
                )
    return rows


def _conversation_rows(runs: Runs) -> list[Row]:
    rivals = (VLLM_CACHE_AWARE, SGLANG, VLLM_ROUND_ROBIN, ROUND_ROBIN)
    return [
        row
        for ours, bound in ((OURS, 1.0), (LEAST_WORK, None))
        for row in _against(runs, MEAN, "mean TTFT", CONVERSATION, [(rival, bound) for rival in rivals], ours)
    ]


def _arena_rows(runs: Runs) -> list[Row]:
    rows = []
    for arm in dict.fromkeys(arm for _, arm in runs.pairs()):
        unanswered = runs.spread(FLOODED, arm, OTHERS_UNANSWERED)
        if unanswered is not None and runs.has(CALM, arm):
            ratio = runs.ratio(OTHERS_P99, (FLOODED, arm), [(CALM, arm)])
            bound = 1.5 if arm == OURS else None
            rows += [
                Row(f"{arm}: the others' p99 TTFT with the flood / without it", ratio, "", at_most=bound),
                Row(f"{arm}: the others' calls without an answer in it", 100 * unanswered.median, "%"),
            ]
    return rows


def _kill_rows(runs: Runs) -> list[Row]:
    rows = []
    for load, arm in runs.pairs():
        for name, figure, bound in KILL_ROWS:
            found = runs.spread(load, arm, f"kill.{figure}")
            if found is not None:
                held = bound if arm == OURS else None
                rows.append(Row(f"{arm}: {name}", found.highest if held == 0 else found.median, "", held))
    return rows


SCENARIOS = {
    "mixed": Scenario(
        question=f"Mixed load at {BUSY} of capacity",
        seconds=20.0,
        loads=(str(BUSY),),
        arms=(OURS, LEAST_WORK, LEAST_REQUESTS, ROUND_ROBIN, *VLLM_ROUTER, SGLANG),
        course=_mixed,
        rows=_mixed_rows,
        by_capacity=True,
    ),
    "overload": Scenario(
        question="Goodput up to one and a half times capacity",
        seconds=15.0,  # so that a queue that grows has time to
        loads=LOADS,
        arms=(OURS, WITHOUT_ADMISSION),
        course=_mixed,
        rows=_overload_rows,
        by_capacity=True,
    ),
    "conversation": Scenario(
        question="Conversations, whose prompts begin as earlier ones did",
        seconds=30.0,
        loads=(CONVERSATION,),
        arms=(OURS, LEAST_WORK, VLLM_ROUND_ROBIN, VLLM_CACHE_AWARE, SGLANG),
        course=_conversation,
        rows=_conversation_rows,
    ),
    "arena": Scenario(
        question="27 tenants, and one who floods one worker",
        seconds=20.0,
        loads=(CALM, FLOODED),
        arms=(OURS, VLLM_ROUND_ROBIN),
        course=_arena,
        rows=_arena_rows,
        # Four of them write 48,000 tokens a second, more than two cores can pass on.
        workers=1,
    ),
    "kill": Scenario(
        question="A worker is killed under the mixed load, and comes back",
        seconds=20.0,
        loads=(KILLED,),
        arms=(OURS,),
        course=_kill,
        rows=_kill_rows,
        by_capacity=True,
    ),
}

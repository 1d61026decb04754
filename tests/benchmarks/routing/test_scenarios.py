"""Does each scenario play the load that it names, and hold the right figures to the issue's targets?"""

import math
from typing import Any

import pytest

from benchmarks.routing.arms import ARMS
from benchmarks.routing.kill import DOWN_S, GRACE_S
from benchmarks.routing.loads import FLOOD
from benchmarks.routing.results import Run, Runs
from benchmarks.routing.run import Course
from benchmarks.routing.scenarios import (
    FLOOD_PER_S,
    KILLED,
    LEAST_REQUESTS,
    LOADS,
    OURS,
    ROUND_ROBIN,
    SCENARIOS,
    SGLANG,
    VLLM_CACHE_AWARE,
    VLLM_ROUND_ROBIN,
    VLLM_ROUTER,
    WITHOUT_ADMISSION,
    Setting,
)
from benchmarks.targets import Row
from tests.benchmarks.routing.made import run

SETTING = Setting(capacity_rps=50.0, seconds=20.0, warm_up_s=5.0)


def course(name: str, load: str, setting: Setting = SETTING) -> Course:
    return SCENARIOS[name].course(setting, SCENARIOS[name].seconds_of(setting), load, 1)


def held(name: str, *runs: Run) -> dict[str, Row]:
    return {row.name: row for row in SCENARIOS[name].rows(Runs(runs))}


def waits(arm: str, short_s: float, long_s: float = 1.0, **more: Any) -> Run:
    return run("mixed", "0.7", arm, short_ttft_p99_s=short_s, long_ttft_p99_s=long_s, **more)


def test_arms_and_loads_of_all_scenarios_exist() -> None:
    for name, scenario in SCENARIOS.items():
        assert set(scenario.arms) <= set(ARMS), name
        for load in scenario.loads:
            assert course(name, load).calls, (name, load)


@pytest.mark.parametrize(("name", "load", "rate"), [("mixed", "0.7", 35.0), ("overload", "1.5", 75.0)])
def test_a_load_is_a_share_of_capacity(name: str, load: str, rate: float) -> None:
    played = course(name, load)
    assert (played.lasts_s, played.warm_up_s, played.patience_s) == (25.0, 5.0, 10.0)
    assert len(played.calls) == pytest.approx(25 * rate, rel=0.15)


def test_seconds_are_the_scenarios_own_unless_named() -> None:
    own = Setting(capacity_rps=50.0)
    assert SCENARIOS["mixed"].seconds_of(own) == 20.0
    assert SCENARIOS["mixed"].seconds_of(SETTING) == SETTING.seconds
    assert course("conversation", "conversation", own).lasts_s == SCENARIOS["conversation"].seconds + 5.0


def test_conversations_share_their_beginnings() -> None:
    blocks = [call.blocks for call in course("conversation", "conversation").calls]
    assert len({one[0] for one in blocks}) < len(blocks)


def test_the_flood_comes_beside_the_same_calls_of_others() -> None:
    calm, flooded = (course("arena", load).calls for load in ("calm", "flooded"))
    flood = [call for call in flooded if call.tenant == FLOOD]
    assert [call for call in flooded if call.tenant != FLOOD] == calm
    assert len(flood) == pytest.approx(25 * FLOOD_PER_S, rel=0.15)


def test_a_worker_is_killed_between_two_halves_of_the_seconds() -> None:
    played = course("kill", KILLED)
    assert played.kill is not None
    assert played.kill.at_s == 15.0
    assert played.lasts_s == 15.0 + DOWN_S + GRACE_S + 10.0
    assert len(played.calls) == pytest.approx(35 * played.lasts_s, rel=0.15)


def test_short_waits_are_held_to_parts_of_others_and_long_ones_to_round_robins() -> None:
    rows = held("mixed", waits(OURS, 0.1, 2.0), waits(ROUND_ROBIN, 0.6, 1.9), waits(LEAST_REQUESTS, 0.4, 1.0))

    short = f"{OURS}: short p99 TTFT / that of "
    assert rows[short + ROUND_ROBIN].value == pytest.approx(1 / 6)
    assert rows[short + ROUND_ROBIN].at_most == pytest.approx(1 / 6)
    assert rows[short + LEAST_REQUESTS].at_most == pytest.approx(1 / 3)
    assert rows[short + LEAST_REQUESTS].met
    assert rows[f"{OURS}: long p99 TTFT / that of {ROUND_ROBIN}"].met is False
    assert len(rows) == 3


def test_the_best_policy_of_vllms_router_is_the_one_to_beat() -> None:
    rivals = [waits(rival, wait_s) for rival, wait_s in zip(VLLM_ROUTER, (0.9, 0.2, 0.5), strict=True)]

    rows = held("mixed", waits(OURS, 0.1), *rivals)

    best = rows[f"{OURS}: short p99 TTFT / that of vllm-router's best policy"]
    assert best.at_most == pytest.approx(1 / 3)
    assert (best.value, best.met) == (0.5, False)
    assert rows[f"{OURS}: short p99 TTFT / that of {VLLM_ROUTER[0]}"].met is None


def test_goodput_in_overload_is_held_to_the_best_at_any_load() -> None:
    def good(arm: str, *values: float) -> list[Run]:
        return [
            run("overload", load, arm, goodput_rps=value) for load, value in zip(LOADS, values, strict=True)
        ]

    rows = held(
        "overload", *good(OURS, 25, 35, 40, 38, 36, 32), *good(WITHOUT_ADMISSION, 25, 35, 40, 30, 9, 4)
    )

    at = "goodput at {} / the best at any load"
    assert [rows[f"{OURS}: {at.format(load)}"].met for load in ("1.2", "1.5")] == [True, False]
    without = rows[f"{WITHOUT_ADMISSION}: {at.format('1.5')}"]
    assert (without.value, without.met) == (0.1, None)


def test_a_load_that_was_not_played_is_not_judged() -> None:
    assert held("overload", run("overload", "0.5", OURS, goodput_rps=25)) == {}
    assert held("mixed", waits(OURS, 0.1)) == {}
    assert held("arena", run("arena", "flooded", OURS, others={"unanswered_share": 0.0})) == {}


def test_conversations_wait_less_than_with_either_cache_aware_router_and_round_robin() -> None:
    def mean(arm: str, value: float) -> Run:
        return run("conversation", "conversation", arm, all_ttft_mean_s=value)

    rows = held(
        "conversation",
        mean(OURS, 0.5),
        mean(VLLM_CACHE_AWARE, 0.6),
        mean(SGLANG, 0.4),
        mean(VLLM_ROUND_ROBIN, 0.7),
    )

    assert [row.met for row in rows.values()] == [True, False, True]


def test_others_than_the_flood_may_wait_half_as_long_again() -> None:
    def others(load: str, p99_s: float, unanswered: float = 0.0) -> Run:
        return run("arena", load, OURS, others={"ttft_p99_s": p99_s, "unanswered_share": unanswered})

    rows = held("arena", others("calm", 0.2), others("flooded", 0.3, 0.05))

    judged = rows[f"{OURS}: the others' p99 TTFT with the flood / without it"]
    assert judged.value == pytest.approx(1.5)
    assert (judged.at_most, judged.met) == (1.5, True)
    assert rows[f"{OURS}: the others' calls without an answer in it"].value == pytest.approx(5)


def test_after_a_kill_all_is_as_before_and_the_worst_seed_tells_who_was_lost() -> None:
    def killed(seed: int, lost: int, after: float | None) -> Run:
        return run("kill", KILLED, OURS, seed, kill={"lost_otherwise": lost, "after_to_before": after})

    rows = held("kill", killed(1, 0, 1.2), killed(2, 1, 1.4), killed(3, 0, None))

    assert rows[f"{OURS}: lost, not mid-stream on it"].value == 1
    assert rows[f"{OURS}: lost, not mid-stream on it"].met is False
    assert rows[f"{OURS}: short p99 TTFT from then on / before"].value == pytest.approx(1.3)
    assert rows[f"{OURS}: short p99 TTFT from then on / before"].met


def test_a_rival_that_is_shown_is_not_judged() -> None:
    other = run("kill", KILLED, VLLM_ROUND_ROBIN, kill={"lost_otherwise": 9})
    [row] = held("kill", other).values()
    assert row.met is None


def test_without_a_capacity_no_load_goes_by_it() -> None:
    free = {name for name, scenario in SCENARIOS.items() if not scenario.by_capacity}
    assert free == {"conversation", "arena"}
    for name in free:
        for load in SCENARIOS[name].loads:
            assert course(name, load, Setting(math.nan, 5.0)).calls

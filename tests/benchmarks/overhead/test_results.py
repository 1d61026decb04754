"""Are gateways compared within a round, and only where both were measured?"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overhead.contenders import COMPILED_REDIS, MEMORY, NGINX, REDIS, TWO_PROCESSES, VLLM_ROUTER
from benchmarks.overhead.results import Result, Results, Spread, rows
from tests.benchmarks.overhead.made import result

TARGETS = {
    "plain request: CPU, gateway:redis / vllm-router": "≤ 1",
    "chunk: CPU, gateway:redis / vllm-router": "≤ 0.85",
    "chunk: CPU, gateway:redis / nginx": "≤ 1.2",
    "flood: chunks a second and core, gateway:redis": "≥ 30000 /s",
    "a quarter: p99, gateway:redis / vllm-router": "≤ 1",
    "plain request: CPU, gateway:redis:compiled / vllm-router": "≤ 1",
    "chunk: CPU, gateway:redis:compiled / vllm-router": "≤ 0.85",
    "chunk: CPU, gateway:redis:compiled / nginx": "≤ 1.2",
    "flood: chunks a second and core, gateway:redis:compiled": "≥ 30000 /s",
    "a quarter: p99, gateway:redis:compiled / vllm-router": "≤ 1",
    "two processes: requests a second, / one": "≥ 1.8",
}


def cpu(contender: str, number: int, us: float, problem: str | None = None) -> Result:
    return result(contender, number, problem, plain={"cpu_us": us})


def whole(contender: str, us: float = 100.0) -> Result:
    """With all that rows are made of."""
    return result(
        contender,
        plain={"cpu_us": us},
        stream={"cpu_us": us / 4},
        flood={"chunks_per_core_s": 4e6 / us},
        quarter={"p50_ms": us / 500, "p99_ms": us / 100, "added_p50_ms": 0.1, "added_p99_ms": 0.5},
        scaling={"predicted_per_s": 1e6 / us},
    )


def test_a_ratio_is_taken_within_each_round_and_then_the_median() -> None:
    pairs = [(100, 50), (300, 100), (90, 90)]
    results = Results(
        each
        for number, (ours, theirs) in enumerate(pairs, 1)
        for each in (cpu(REDIS, number, ours), cpu(NGINX, number, theirs))
    )
    assert results.ratio("plain", "cpu_us", REDIS, NGINX) == Spread(2.0, 1.0, 3.0)


def test_a_round_in_which_one_has_a_problem_has_no_part_in_it() -> None:
    results = Results(
        [cpu(REDIS, 1, 100), cpu(NGINX, 1, 1, "it ended"), cpu(REDIS, 2, 100), cpu(NGINX, 2, 50)]
    )
    assert results.ratio("plain", "cpu_us", REDIS, NGINX) == Spread(2.0, 2.0, 2.0)
    assert results.spread(NGINX, "plain", "cpu_us") == Spread(50, 50, 50)
    assert results.problems() == ["round 1, nginx: it ended"]
    assert results.contenders() == [REDIS, NGINX]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_no_figure(value: float) -> None:
    results = Results([cpu(REDIS, 1, value), cpu(NGINX, 1, 50)])
    assert results.spread(REDIS, "plain", "cpu_us") is None
    assert results.ratio("plain", "cpu_us", REDIS, NGINX) is None


def test_nothing_compares_with_what_cost_nothing() -> None:
    assert Results([cpu(REDIS, 1, 1), cpu(NGINX, 1, 0)]).ratio("plain", "cpu_us", REDIS, NGINX) is None


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.5, 2.0)), min_size=1, max_size=9))
def test_a_machine_that_is_slower_in_a_round_is_so_for_both(rounds: list[tuple[float, float]]) -> None:
    results = Results(
        each
        for number, (us, factor) in enumerate(rounds)
        for each in (cpu(REDIS, number, 3 * us * factor), cpu(NGINX, number, us * factor))
    )
    spread = results.ratio("plain", "cpu_us", REDIS, NGINX)
    assert spread is not None
    assert [spread.lowest, spread.highest] == pytest.approx([3, 3])


def test_every_target_is_held_against() -> None:
    found = rows(Results(map(whole, (NGINX, VLLM_ROUTER, MEMORY, REDIS, COMPILED_REDIS, TWO_PROCESSES))))
    assert {row.name: row.target for row in found if row.target} == TARGETS


@pytest.mark.parametrize(
    ("us", "others_us", "two_us", "met"),
    [
        (80.0, 100.0, 88.0, dict.fromkeys(TARGETS, True)),
        (140.0, 100.0, 156.0, dict.fromkeys(TARGETS, False)),
    ],
)
def test_targets_are_met_or_not(us: float, others_us: float, two_us: float, met: dict[str, bool]) -> None:
    results = [
        whole(NGINX, others_us),
        whole(VLLM_ROUTER, others_us),
        whole(MEMORY),
        whole(REDIS, us),
        whole(COMPILED_REDIS, us),
    ]
    two = result(TWO_PROCESSES, scaling={"predicted_per_s": 2e6 / two_us})
    assert {row.name: row.met for row in rows(Results([*results, two])) if row.target} == met


def test_without_others_ours_is_told_alone() -> None:
    assert [row.name for row in rows(Results([cpu(MEMORY, 1, 100)]))] == [
        "plain request: CPU, gateway:memory"
    ]
    assert rows(Results([])) == []


def test_two_processes_that_cost_more_do_less() -> None:
    one = result(REDIS, scaling={"predicted_per_s": 1e6 / 100})
    two = result(TWO_PROCESSES, scaling={"predicted_per_s": 2e6 / 125})
    [row] = rows(Results([one, two]))
    assert row.value == pytest.approx(1.6)
    assert row.met is False

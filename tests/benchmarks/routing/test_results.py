"""Are figures found, compared by seed, and kept so that they can be read again?"""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing.results import (
    QUANTILES,
    Run,
    Runs,
    Spread,
    others_figures,
    quantiles,
    value_of,
    waits_s,
)
from tests.benchmarks.routing.made import answer, run

P99 = "sizes.short.ttft_p99_s"


def runs(**by_arm: list[float | None]) -> Runs:
    """Of these arms with their short p99 for the seeds from 1 on."""
    return Runs(
        run("mixed", "0.7", arm, seed, short_ttft_p99_s=value)
        for arm, values in by_arm.items()
        for seed, value in enumerate(values, 1)
    )


def test_a_run_is_kept_as_json_and_comes_back_the_same() -> None:
    made = run("mixed", "0.7", "gateway:least_work", 3, short_n=7, wasted_tokens=None)
    assert Run(**json.loads(json.dumps(made.kept()))) == made


def test_a_spread_is_of_the_seeds_that_know_the_figure() -> None:
    found = runs(a=[0.3, None, 0.1, 0.2])
    assert found.spread("0.7", "a", P99) == Spread(0.2, 0.1, 0.3)
    assert found.spread("0.7", "a", "sizes.short.unknown") is None
    assert found.spread("0.7", "b", P99) is None


def test_a_ratio_is_the_median_of_the_seeds_ratios() -> None:
    found = runs(a=[1.0, 2.0, 9.0], b=[2.0, 8.0, 3.0])
    assert found.ratio(P99, ("0.7", "a"), [("0.7", "b")]) == 0.5  # of 0.5, 0.25 and 3


def test_the_best_rival_is_chosen_for_each_seed_anew() -> None:
    found = runs(a=[1.0, 1.0], b=[2.0, 4.0], c=[4.0, 2.0])
    pairs = [("0.7", "b"), ("0.7", "c")]
    assert found.ratio(P99, ("0.7", "a"), pairs) == 0.5
    assert found.ratio(P99, ("0.7", "a"), pairs, max) == 0.25


def test_only_seeds_that_both_have_are_compared() -> None:
    found = runs(a=[1.0, None, 5.0], b=[4.0, 1.0])
    assert found.ratio(P99, ("0.7", "a"), [("0.7", "b")]) == 0.25
    assert math.isnan(found.ratio(P99, ("0.7", "a"), [("0.7", "c")]))


def test_anything_is_endlessly_more_than_nothing() -> None:
    assert runs(a=[1.0], b=[0.0]).ratio(P99, ("0.7", "a"), [("0.7", "b")]) == math.inf


def test_runs_are_found_by_load_and_arm_in_the_order_of_their_seeds() -> None:
    found = Runs([run("mixed", "0.7", "a", 2), run("mixed", "0.7", "a", 1), run("mixed", "0.9", "b", 1)])
    assert [each.seed for each in found.of("0.7", "a")] == [1, 2]
    assert found.pairs() == [("0.7", "a"), ("0.9", "b")]
    assert found.has("0.7", "a")
    assert not found.has("0.7", "a", "b")


def test_a_figure_that_nobody_has_is_none() -> None:
    made = run("kill", "x", "a", goodput_rps=3, wasted_tokens=None)
    assert value_of(made, "goodput_rps") == 3
    assert value_of(made, "wasted_tokens") is None
    assert value_of(made, "kill.up_s") is None
    assert value_of(made, "goodput_rps.more") is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=500))
def test_quantiles_rise_from_the_lowest_to_the_highest(values: list[float]) -> None:
    found = quantiles(values)
    assert len(found) == QUANTILES + 1
    assert found == sorted(found)
    assert (found[0], found[-1]) == (round(min(values), 4), round(max(values), 4))


def test_of_no_values_there_are_no_quantiles() -> None:
    assert quantiles([]) == []


def test_the_waits_are_of_those_who_got_a_token() -> None:
    assert waits_s([answer(1, 0.2), answer(2, None, "shed"), answer(3, 0.1, "cut")]) == [0.2, 0.1]


def test_the_others_are_told_with_how_many_of_them_got_nothing() -> None:
    found = others_figures([answer(1, 0.2), answer(2, 0.4), answer(3, 0.3), answer(4, None, "gave_up")])
    assert found == {"n": 4, "ttft_p50_s": 0.3, "ttft_p99_s": 0.4, "unanswered_share": pytest.approx(0.25)}
    assert others_figures([answer(4, None, "shed")])["ttft_p99_s"] is None

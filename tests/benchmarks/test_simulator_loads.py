"""Are the measured loads sent as they were, and the answers' times told with the measurements' words?"""

import math

import pytest

from benchmarks.simulator.costs import Costs
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.loads import (
    Arrival,
    LeastRequests,
    RoundRobin,
    Timing,
    closed_loop,
    figures,
    mixed_arrivals,
    open_loop,
    quantile,
)
from benchmarks.simulator.request import Limits, Request

TICK = Costs(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # a second a step


def test_a_quantile_is_one_of_the_values() -> None:
    values = [3.0, 1.0, 2.0, 4.0]

    assert [quantile(values, share) for share in (0, 0.5, 0.99, 1)] == [1.0, 3.0, 4.0, 4.0]


def test_figures_have_the_names_and_units_of_the_measurements() -> None:
    found = figures([Timing(11, False, 1.0, 1.5, 2.5), Timing(1, False, 2.0, 2.2, 2.2)])

    assert found == {
        "out_tok_s": pytest.approx(12 / 1.5),
        "ttft_mean": pytest.approx(0.35),
        "ttft_p50": pytest.approx(0.5),
        "ttft_p99": pytest.approx(0.5),
        "e2e_p50": pytest.approx(1.5),
        "e2e_p99": pytest.approx(1.5),
        "tpot_p50_ms": pytest.approx(100),
        "tpot_p99_ms": pytest.approx(100),
    }


def test_a_stream_sends_its_next_request_when_it_has_its_last_answer() -> None:
    timings = closed_loop(Engine(Limits(), TICK), 2, 5, 10, 3)

    assert [timing.sent_s for timing in timings] == [0, 0, 3, 3, 6]
    assert [timing.last_s for timing in timings] == [3, 3, 6, 6, 9]


def test_the_mixed_load_is_the_measured_one() -> None:
    arrivals = list(mixed_arrivals(22, 25, 7))

    assert len(arrivals) == 603  # as measured, 54 of them long
    long_ones = [arrival.request for arrival in arrivals if arrival.is_long]
    assert len(long_ones) == 54
    assert all(8_000 <= request.prompt_tokens < 24_000 for request in long_ones)
    short_ones = [arrival.request for arrival in arrivals if not arrival.is_long]
    assert all(50 <= request.prompt_tokens < 800 for request in short_ones)
    assert all(50 <= arrival.request.output_tokens < 200 for arrival in arrivals)
    assert [arrival.time_s for arrival in arrivals] == sorted(arrival.time_s for arrival in arrivals)


def test_an_open_loop_sends_at_the_arrivals_times_whatever_the_answers_do() -> None:
    engines = [Engine(Limits(), TICK) for _ in range(2)]
    arrivals = [Arrival(time_s, Request(10, 4), time_s > 0) for time_s in (0.0, 0.5, 0.9)]

    timings = open_loop(engines, RoundRobin(), iter(arrivals))

    assert [(timing.sent_s, timing.first_s, timing.last_s) for timing in timings] == [
        (0.0, 1.0, 4.0),
        (0.5, 1.5, 4.5),
        (0.9, 3.0, 6.0),
    ]
    assert [timing.is_long for timing in timings] == [False, True, True]


def test_round_robin_starts_with_the_second_as_the_measuring_tool_did() -> None:
    policy = RoundRobin()
    engines = [Engine(Limits(), TICK) for _ in range(2)]

    assert [policy(engines) for _ in range(3)] == [1, 0, 1]


def test_least_requests_takes_the_emptiest_and_draws_ties() -> None:
    engines = [Engine(Limits(), TICK) for _ in range(3)]
    engines[0].submit(Request(10, 3), 0.0)
    engines[2].submit(Request(10, 3), 0.0)
    list(engines[0].advance(1.5))  # runs, the other one waits: both count

    policy = LeastRequests(1)
    assert {policy(engines) for _ in range(20)} == {1}
    engines[1].submit(Request(10, 3), 0.0)
    assert {policy(engines) for _ in range(50)} == {0, 1, 2}
    for engine in engines:
        list(engine.advance(math.inf))

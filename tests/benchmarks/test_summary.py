"""Are the numbers of a burst what its records say?"""

import pytest

from benchmarks.burst.records import Failure, Record
from benchmarks.burst.summary import Percentiles, percentiles, summarize


def answered(index: int, started_s: float = 0.0, **more: float | int | None) -> Record:
    seen = {
        "ended_s": 10.0,
        "first_token_s": 2.0,
        "last_token_s": 8.0,
        "prompt_tokens": 5,
        "output_tokens": 4,
    }
    return Record(index=index, started_s=started_s, **{**seen, **more})  # type: ignore[arg-type]


def failed(index: int, status: int | None, code: str, message: str = "no", ended_s: float = 1.0) -> Record:
    return Record(index=index, started_s=0.0, ended_s=ended_s, failure=Failure(status, code, message))


def test_percentiles_are_interpolated_linearly_between_neighbours() -> None:
    found = percentiles([4.0, 1.0, 3.0, 2.0])

    assert found is not None
    assert (found.p50, found.p90, found.p99) == pytest.approx((2.5, 3.7, 3.97))


def test_one_value_is_every_percentile_of_itself() -> None:
    assert percentiles([7.0, None]) == Percentiles(7.0, 7.0, 7.0)


def test_nothing_measured_has_no_percentiles() -> None:
    assert percentiles([None, None]) is None


def test_time_to_first_token_counts_from_the_start_of_its_own_request() -> None:
    assert answered(0, started_s=0.5).ttft_s == 1.5


def test_time_per_output_token_leaves_the_first_token_out() -> None:
    assert answered(0).tpot_s == (8.0 - 2.0) / 3


@pytest.mark.parametrize("output_tokens", [None, 0, 1])
def test_fewer_than_two_tokens_have_no_time_per_token(output_tokens: int | None) -> None:
    assert answered(0, output_tokens=output_tokens).tpot_s is None


def test_an_answer_that_was_not_streamed_has_no_token_times() -> None:
    record = answered(0, first_token_s=None, last_token_s=None)

    assert (record.ttft_s, record.tpot_s) == (None, None)


def test_rates_count_whole_answers_over_the_time_from_first_start_to_last_end() -> None:
    summary = summarize(
        [answered(0, started_s=1.0), answered(1, started_s=2.0, ended_s=21.0), failed(2, 503, "x")]
    )

    assert summary.wall_s == 21.0
    assert (summary.requests, summary.ok, summary.failed) == (3, 2, 1)
    assert summary.requests_per_s == 2 / 21
    assert (summary.prompt_tokens, summary.output_tokens) == (10, 8)
    assert summary.output_tokens_per_s == 8 / 21


def test_a_failed_request_lends_its_times_and_tokens_to_nothing() -> None:
    half = Record(0, 0.0, 99.0, first_token_s=50.0, output_tokens=1000, failure=Failure(200, "cut_off", "no"))
    summary = summarize([half, answered(1)])

    assert summary.output_tokens == 4
    assert summary.ttft_s == Percentiles(2.0, 2.0, 2.0)
    assert summary.latency_s == Percentiles(10.0, 10.0, 10.0)


def test_answers_without_usage_are_told_apart() -> None:
    summary = summarize([answered(0), answered(1, output_tokens=None, prompt_tokens=None)])

    assert (summary.output_tokens, summary.prompt_tokens, summary.without_usage) == (4, 5, 1)


def test_errors_are_counted_by_status_and_code_the_most_frequent_first() -> None:
    summary = summarize(
        [
            failed(0, None, "timeout"),
            failed(1, 429, "rate_limit_exceeded", "first"),
            failed(2, 429, "rate_limit_exceeded", "second"),
        ]
    )

    assert list(summary.errors.items()) == [("429 rate_limit_exceeded", 2), ("timeout", 1)]
    assert summary.error_example["429 rate_limit_exceeded"] == "first"


def test_a_burst_that_took_no_time_has_no_rate() -> None:
    assert summarize([Record(0, 1.0, 1.0)]).requests_per_s == 0.0


def test_retries_of_all_requests_are_added_up() -> None:
    assert summarize([answered(0, retries=2), answered(1, retries=1)]).retries == 3

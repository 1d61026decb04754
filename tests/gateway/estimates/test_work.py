"""Is everything that a request adds to a worker's load taken off again, exactly and once?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimates.work import DOUBLE_AT_TOKENS, Share, Work, WorkerLoad, prefill_cost


def held(load: WorkerLoad) -> tuple[int, int, int, int]:
    return load.requests, load.prefilling, load.prefill_tokens, load.decode_tokens


def test_a_short_prompt_costs_its_tokens_and_a_long_one_more() -> None:
    assert prefill_cost(200) == 200
    assert prefill_cost(DOUBLE_AT_TOKENS) == 2 * DOUBLE_AT_TOKENS


def test_what_is_cached_is_not_computed_but_attended_to() -> None:
    assert prefill_cost(500, 400) == 101
    assert prefill_cost(20_000, 20_000) == 0
    assert prefill_cost(2 * DOUBLE_AT_TOKENS, DOUBLE_AT_TOKENS) == 4 * DOUBLE_AT_TOKENS


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_prompt_in_two_parts_costs_what_it_costs_whole(first: int, second: int, third: int) -> None:
    cached, middle, whole = sorted((first, second, third))
    in_two = prefill_cost(middle, cached) + prefill_cost(whole, middle)
    assert 0 <= prefill_cost(whole, cached) - in_two <= 1


def test_a_load_holds_prompts_to_their_first_token_and_output_to_the_end() -> None:
    load = WorkerLoad()
    share = load.take(Work(10, 4))
    other = load.take(Work(2, 1))
    assert held(load) == (2, 2, 12, 5)
    share.first_token(1.0)
    assert held(load) == (2, 1, 2, 5)
    share.close()
    assert held(load) == (1, 1, 2, 1)
    other.close()
    assert held(load) == (0, 0, 0, 0)


def test_what_was_ahead_of_a_request_is_what_had_no_first_token_when_it_came() -> None:
    load = WorkerLoad()
    first = load.take(Work(10, 4))
    second = load.take(Work(20, 4))
    second.first_token(1.0)
    third = load.take(Work(40, 4))
    assert (first.ahead_tokens, second.ahead_tokens, third.ahead_tokens) == (0, 10, 10)
    assert third.work == Work(40, 4)


def test_a_stream_knows_what_was_prefilled_meanwhile_and_among_how_many_it_ran() -> None:
    load = WorkerLoad()
    before, stream, after, failed = (load.take(Work(tokens, 1)) for tokens in (10, 20, 40, 80))
    before.first_token(1.0)
    stream.first_token(2.0)
    assert (stream.prefilled_tokens(), stream.streams()) == (0, 2)
    failed.close()
    after.first_token(3.0)
    assert (stream.prefilled_tokens(), stream.streams()) == (40, 2.5)
    assert load.prefilled_tokens == 70


def test_only_decoding_is_told_from_steps_that_a_prompt_made_longer() -> None:
    load = WorkerLoad()
    assert load.only_decoded_since(0.0)
    share = load.take(Work(10, 1))
    assert not load.only_decoded_since(5.0)
    share.first_token(6.0)
    assert not load.only_decoded_since(5.0)
    assert not load.only_decoded_since(6.0)
    assert load.only_decoded_since(6.5)


def test_prompts_that_others_have_there_make_steps_longer_too() -> None:
    load = WorkerLoad()
    load.prompts_elsewhere(5.0)
    assert not load.only_decoded_since(5.0)
    assert load.only_decoded_since(5.5)
    assert held(load) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "calls", [("first_token", "first_token", "close", "close"), ("close", "close", "first_token")]
)
def test_a_call_that_comes_twice_or_too_late_changes_nothing(calls: tuple[str, ...]) -> None:
    load = WorkerLoad()
    load.take(Work(1, 1))
    share = load.take(Work(10, 4))
    for call in calls:
        share.first_token(1.0) if call == "first_token" else share.close()
    assert held(load) == (1, 1, 1, 1)
    assert load.prefilled_tokens == (10 if calls[0] == "first_token" else 0)


tokens = st.integers(0, 10**9)
steps = st.lists(
    st.tuples(st.sampled_from(["take", "first_token", "close"]), st.integers(0, 20), tokens, tokens)
)


@given(steps)
def test_a_load_is_the_sum_over_those_who_have_not_given_it_back(
    done: list[tuple[str, int, int, int]],
) -> None:
    load = WorkerLoad()
    shares: list[Share] = []
    prefilling: set[int] = set()
    running: set[int] = set()
    for act, which, prefill, decode in done:
        if act == "take":
            running.add(len(shares))
            prefilling.add(len(shares))
            shares.append(load.take(Work(prefill, decode)))
        elif shares and act == "close":
            shares[which % len(shares)].close()
            running.discard(which % len(shares))
            prefilling.discard(which % len(shares))
        elif shares:
            shares[which % len(shares)].first_token(1.0)
            prefilling.discard(which % len(shares))
        assert (load.requests, load.prefilling) == (len(running), len(prefilling))
        assert load.prefill_tokens == sum(shares[n].work.prefill_tokens for n in prefilling)
        assert load.decode_tokens == sum(shares[n].work.decode_tokens for n in running)

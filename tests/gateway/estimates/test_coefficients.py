"""Is a worker's speed known after fifty requests, whatever else happens to them?"""

import random

import pytest

from gateway.estimates.coefficients import Coefficients, Speed
from gateway.estimates.work import prefill_cost
from tests.gateway.estimates.engine import MEASURED_MS, first_tokens

LONE_PROMPTS_S = ((1024, 0.029), (4096, 0.100), (16384, 0.450), (30000, 0.974))  # one H200, median of 3


def test_the_start_is_what_was_measured() -> None:
    start = Speed()
    for tokens, measured_s in LONE_PROMPTS_S:
        expected_s = start.first_token_s + start.prefill_token_s * prefill_cost(tokens)
        assert expected_s == pytest.approx(measured_s, rel=0.02)
    for streams, measured_ms in MEASURED_MS[:-1]:
        expected_ms = 1000 * (start.step_s + start.decode_token_s * streams)
        assert expected_ms == pytest.approx(measured_ms, rel=0.05)


def test_nothing_is_changed_before_anything_is_learnt() -> None:
    assert Coefficients().speed == Speed()
    assert Coefficients(Speed(1, 2, 3, 4)).speed == Speed(1, 2, 3, 4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [0.2, 0.7, 0.95])
@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_prefill_is_known_after_fifty_requests_some_of_which_stall(
    factor: float, load: float, seed: int
) -> None:
    true = Speed(first_token_s=7e-3 * factor, prefill_token_s=21e-6 * factor)
    chance = random.Random(seed)
    coefficients = Coefficients()
    for ahead, own, waited_s in first_tokens(true, 50, load=load, seed=seed):
        coefficients.first_token(ahead, own, waited_s * (30 if chance.random() < 0.04 else 1))
    assert coefficients.speed.prefill_token_s == pytest.approx(true.prefill_token_s, rel=0.35)


def test_a_worker_forty_times_slower_is_known_after_a_hundred() -> None:
    true = Speed(first_token_s=0.28, prefill_token_s=840e-6)
    coefficients = Coefficients()
    for ahead, own, waited_s in first_tokens(true, 100):
        coefficients.first_token(ahead, own, waited_s)
    assert coefficients.speed.prefill_token_s == pytest.approx(true.prefill_token_s, rel=0.2)


def test_cache_hits_that_nobody_told_of_do_not_make_a_worker_seem_idle() -> None:
    true = Speed()
    chance = random.Random(1)
    coefficients = Coefficients()
    for ahead, own, waited_s in first_tokens(true, 300, load=0.3):
        hit = chance.random() < 0.1
        coefficients.first_token(ahead, own, true.first_token_s if hit else waited_s)
    assert true.prefill_token_s * 0.6 < coefficients.speed.prefill_token_s < true.prefill_token_s * 1.1


def test_a_wait_behind_others_tells_less_than_one_alone() -> None:
    alone, behind = Coefficients(), Coefficients()
    alone.first_token(0, 10_000, 0.5)
    behind.first_token(9_000, 1_000, 0.5)
    assert Speed().prefill_token_s < behind.speed.prefill_token_s < alone.speed.prefill_token_s


def test_time_per_token_is_parted_into_the_step_and_the_streams() -> None:
    true = Speed(step_s=0.015, decode_token_s=100e-6)
    chance = random.Random(2)
    coefficients = Coefficients()
    for _ in range(100):
        streams, tokens = chance.randint(1, 200), chance.randint(8, 400)
        gap_s = true.step_s + true.decode_token_s * streams
        coefficients.streamed(tokens, gap_s * (tokens - 1) * chance.gauss(1, 0.05), streams, 0)
    assert coefficients.speed.step_s == pytest.approx(true.step_s, rel=0.15)
    assert coefficients.speed.decode_token_s == pytest.approx(true.decode_token_s, rel=0.15)
    assert coefficients.speed.prefill_token_s == Speed().prefill_token_s


def test_time_that_went_to_prompts_is_not_decodings() -> None:
    true = Speed()
    coefficients = Coefficients()
    for streams in (1, 50, 100) * 20:
        decoding_s = 9 * (true.step_s + true.decode_token_s * streams)
        coefficients.streamed(10, decoding_s + 2_000 * true.prefill_token_s, streams, 2_000)
    assert coefficients.speed.step_s == pytest.approx(true.step_s, rel=0.02)
    assert coefficients.speed.decode_token_s == pytest.approx(true.decode_token_s, rel=0.02)


def test_more_prefill_than_there_was_time_for_leaves_decoding_a_part() -> None:
    coefficients = Coefficients(Speed(step_s=0.002, decode_token_s=1e-9))
    for _ in range(200):
        coefficients.streamed(101, 1.0, 1, 10**9)
    assert coefficients.speed.step_s == pytest.approx(0.001, rel=0.01)


def test_an_answer_of_few_tokens_teaches_nothing() -> None:
    coefficients = Coefficients()
    for tokens in range(8):
        coefficients.streamed(tokens, 9.0, 1, 0)
    assert coefficients.speed == Speed()
    coefficients.streamed(8, 9.0, 1, 0)
    assert coefficients.speed != Speed()

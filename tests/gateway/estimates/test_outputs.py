"""Is the answer expected to be like the tenant's last ones?"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimates.outputs import FIRST_TOKENS, Outputs
from gateway.model import Endpoint

CHAT, TEXT = Endpoint.CHAT, Endpoint.COMPLETIONS


def test_before_the_first_answer_a_common_length_is_expected() -> None:
    assert Outputs().expected("acme", CHAT, 4096) == FIRST_TOKENS


def test_no_more_is_expected_than_the_request_allows_and_at_least_one() -> None:
    outputs = Outputs()
    assert outputs.expected("acme", CHAT, 16) == 16
    outputs.learn("acme", CHAT, 0)
    assert outputs.expected("acme", CHAT, 4096) == 1


def test_tenants_and_endpoints_have_averages_of_their_own() -> None:
    outputs = Outputs()
    outputs.learn("acme", CHAT, 100)
    outputs.learn("acme", TEXT, 10)
    outputs.learn("other", CHAT, 500)
    found = [outputs.expected(*of, 4096) for of in (("acme", CHAT), ("acme", TEXT), ("other", CHAT))]
    assert found == [100, 10, 500]


def test_a_new_tenant_is_taken_to_be_like_everybody_at_that_endpoint() -> None:
    outputs = Outputs()
    outputs.learn("acme", CHAT, 100)
    outputs.learn("other", CHAT, 500)
    assert outputs.expected("new", CHAT, 4096) == 300
    assert outputs.expected("new", TEXT, 4096) == FIRST_TOKENS


def test_the_first_answers_count_alike() -> None:
    outputs = Outputs()
    for tokens in (100, 200, 600):
        outputs.learn("acme", CHAT, tokens)
    assert outputs.expected("acme", CHAT, 4096) == 300


def test_an_average_follows_a_tenant_that_changes_and_no_single_answer() -> None:
    outputs = Outputs()
    for _ in range(1000):
        outputs.learn("acme", CHAT, 100)
    outputs.learn("acme", CHAT, 1100)
    assert outputs.expected("acme", CHAT, 4096) == 150
    for _ in range(100):
        outputs.learn("acme", CHAT, 1000)
    assert outputs.expected("acme", CHAT, 4096) == pytest.approx(1000, rel=0.02)


def test_of_too_many_tenants_those_seen_last_are_kept() -> None:
    outputs = Outputs(max_tenants=1)  # two averages
    outputs.learn("first", CHAT, 10)
    outputs.learn("second", CHAT, 20)
    outputs.learn("first", CHAT, 10)
    outputs.learn("third", CHAT, 3000)
    assert outputs.expected("first", CHAT, 4096) == 10
    assert outputs.expected("third", CHAT, 4096) == 3000
    assert outputs.expected("second", CHAT, 4096) == round((10 + 20 + 10 + 3000) / 4)


@given(st.lists(st.integers(0, 100_000), min_size=1), st.integers(1, 100_000))
def test_an_expectation_lies_within_what_was_seen_and_what_is_allowed(seen: list[int], allowed: int) -> None:
    outputs = Outputs()
    for tokens in seen:
        outputs.learn("acme", CHAT, tokens)
    assert (
        min(allowed, max(1, min(seen)))
        <= outputs.expected("acme", CHAT, allowed)
        <= min(allowed, max(1, *seen, 1))
    )


def test_the_average_of_random_lengths_is_near_their_mean() -> None:
    chance, outputs = random.Random(3), Outputs()
    for _ in range(500):
        outputs.learn("acme", CHAT, round(chance.expovariate(1 / 200)))
    assert outputs.expected("acme", CHAT, 4096) == pytest.approx(200, rel=0.35)

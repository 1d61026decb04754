"""Are prompts found where they were sent, and nowhere else?"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimates.prefixes import Prefixes, chain
from gateway.model import Chain

KIB = 1024


def text(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def made(prompt: bytes, prompt_tokens: int, salt: str = "salt") -> Chain:
    found = chain(salt, memoryview(prompt), prompt_tokens)
    assert found is not None
    return found


def test_a_prompt_sent_before_is_cached_but_for_the_token_that_is_always_computed() -> None:
    prefixes, sent = Prefixes(), made(text(8 * KIB), 2000)
    assert prefixes.cached_tokens("w0", sent) == 0
    prefixes.note("w0", sent)
    assert prefixes.cached_tokens("w0", sent) == 1999


def test_what_follows_a_known_beginning_is_new() -> None:
    prefixes = Prefixes()
    prefixes.note("w0", made(text(4 * KIB), 1000))
    longer = made(text(4 * KIB) + text(4 * KIB, seed=2), 2000)
    assert prefixes.cached_tokens("w0", longer) == 1000


def test_whole_steps_alone_are_compared() -> None:
    prefixes = Prefixes()
    prefixes.note("w0", made(text(2 * KIB - 1), 512))
    assert prefixes.cached_tokens("w0", made(text(2 * KIB - 1), 512)) == 512 * KIB // (2 * KIB - 1)


@pytest.mark.parametrize("length", [0, 1, KIB - 1])
def test_a_prompt_shorter_than_a_step_has_no_chain(length: int) -> None:
    assert chain("salt", memoryview(text(length)), 100) is None
    assert len(made(text(KIB), 100).hashes) == 1


def test_a_chain_tells_how_long_its_prompt_is_whatever_buffer_that_is_part_of() -> None:
    prompt = text(5 * KIB)
    part = memoryview(bytearray(b"before " + prompt))[len(b"before ") :]
    assert chain("salt", part, 1200) == made(prompt, 1200)
    assert (made(prompt, 1200).prompt_bytes, made(prompt, 1200).prompt_tokens) == (5 * KIB, 1200)


def test_a_difference_ends_what_is_cached_though_the_rest_be_alike() -> None:
    prefixes, prompt = Prefixes(), bytearray(text(16 * KIB))
    prefixes.note("w0", made(bytes(prompt), 4096))
    prompt[5 * KIB + 17] ^= 1
    assert prefixes.cached_tokens("w0", made(bytes(prompt), 4096)) == 5 * 256


@pytest.mark.parametrize(
    ("kib", "steps"), [(16, 16), (17, 16), (18, 17), (48, 32), (112, 48), (240, 64), (496, 80)]
)
def test_steps_grow_with_the_length_that_is_behind_them(kib: int, steps: int) -> None:
    assert len(made(text(kib * KIB), 1).hashes) == steps


def test_of_a_huge_prompt_only_the_beginning_is_followed() -> None:
    prefixes, sent = Prefixes(), made(text(992 * KIB), 200_000)
    prefixes.note("w0", sent)
    assert len(sent.hashes) == 80
    assert prefixes.cached_tokens("w0", sent) == 100_000


def test_another_tenants_prompt_is_not_found_though_it_be_the_same() -> None:
    prefixes = Prefixes()
    prefixes.note("w0", made(text(8 * KIB), 2000, "salt of acme"))
    assert prefixes.cached_tokens("w0", made(text(8 * KIB), 2000, "salt of other")) == 0


def test_workers_are_kept_apart_and_one_started_anew_has_nothing() -> None:
    prefixes, sent = Prefixes(), made(text(8 * KIB), 2000)
    prefixes.note("w0", sent)
    prefixes.note("w1", sent)
    prefixes.forget("w0")
    prefixes.forget("never seen")
    assert [prefixes.cached_tokens(worker, sent) for worker in ("w0", "w1", "w2")] == [0, 1999, 0]


def test_the_prompts_sent_last_are_kept_and_the_ends_of_others_go_first() -> None:
    prefixes = Prefixes(max_entries=12)
    old, used, new = (made(text(4 * KIB, seed), 1000) for seed in (1, 2, 3))
    for sent in (old, used, new, old):
        prefixes.note("w0", sent)
    prefixes.note("w0", made(text(2 * KIB, seed=4), 500))
    assert [prefixes.cached_tokens("w0", sent) for sent in (old, used, new)] == [999, 500, 999]


prompts = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 24)), min_size=1, max_size=60)


@given(prompts, st.integers(1, 60))
def test_never_more_is_cached_than_was_sent_and_never_more_steps_are_kept_than_allowed(
    sent: list[tuple[int, int]], max_entries: int
) -> None:
    prefixes = Prefixes(max_entries)
    longest: dict[int, int] = {}
    for seed, length in sent:
        prompt = made(text(length * KIB, seed), length * 256)
        found = prefixes.cached_tokens("w0", prompt)
        assert found <= min(longest.get(seed, 0), length) * 256
        prefixes.note("w0", prompt)
        longest[seed] = max(length, longest.get(seed, 0))
    every = [made(text(24 * KIB, seed), 24 * 256) for seed in longest]
    known = prefixes._by_worker["w0"]
    assert len(known) <= max_entries
    for one in every:  # a step is known only with all before it
        steps = [link in known for link in one.hashes]
        assert steps == sorted(steps)

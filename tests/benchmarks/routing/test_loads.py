"""Do loads hold what they say, the same for the same seed?"""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.routing import loads
from benchmarks.routing.loads import Call, arena, conversation, mixed, prompt
from benchmarks.routing.traces import ARENA_FILE, BLOCK_TOKENS, CONVERSATION_FILE, MAX_MODEL_LEN
from benchmarks.simulator.asked import Asked, Model, read
from benchmarks.simulator.blocks import BLOCK_TOKENS as KV_BLOCK_TOKENS
from benchmarks.simulator.blocks import TOKEN_BYTES
from benchmarks.simulator.loads import mixed_arrivals

CALL = Call(at_s=1.0, tenant="t00", size="short", prompt_tokens=100, output_tokens=10)


def asked(call: Call, seed: int = 0) -> Asked:
    """As a simulated worker understands it."""
    body = {"model": "q", "prompt": prompt(call, seed).decode(), "max_tokens": call.output_tokens}
    return read(json.dumps(body).encode(), False, Model("q", MAX_MODEL_LEN, 50.0, 0))


def test_the_mixed_load_is_the_one_that_was_measured() -> None:
    calls = mixed(22.0, 25.0, 7)
    measured = list(mixed_arrivals(22.0, 25.0, 7))

    assert [(call.at_s, call.prompt_tokens, call.output_tokens) for call in calls] == [
        (one.time_s, one.request.prompt_tokens, one.request.output_tokens)
        for one in measured
        if one.time_s < 25.0
    ]
    assert len(calls) == len(measured) - 1  # that one's last comes after the end


def test_a_tenth_of_the_mixed_load_is_long() -> None:
    calls = mixed(50.0, 100.0, 1)
    longs = [call for call in calls if call.size == "long"]

    assert len(longs) / len(calls) == pytest.approx(0.1, abs=0.02)
    assert all(8_000 <= call.prompt_tokens <= 24_000 for call in longs)
    assert all(50 <= call.prompt_tokens <= 800 for call in calls if call.size == "short")
    assert {call.size for call in calls} == {"short", "long"}
    assert {call.tenant for call in calls} == {loads.ONE_TENANT}


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_trace_can_be_played_faster(factor: float) -> None:
    calls = conversation(factor, 300.0, 1)

    assert len(calls) / 300.0 == pytest.approx(3.1 * factor, rel=0.15)
    assert all(0 <= call.at_s < 300.0 for call in calls)
    assert all(before.at_s <= after.at_s for before, after in pairwise(calls))


def test_a_seed_gives_the_same_calls_again_and_another_seed_others() -> None:
    assert conversation(3.0, 60.0, 1) == conversation(3.0, 60.0, 1)
    assert conversation(3.0, 60.0, 1) != conversation(3.0, 60.0, 2)
    assert arena(3.0, 60.0, 1, flood_rate=5.0) == arena(3.0, 60.0, 1, flood_rate=5.0)
    assert arena(3.0, 60.0, 1) != arena(3.0, 60.0, 2)


def test_a_trace_cannot_be_longer_than_it_is() -> None:
    assert arena(10.0, 60.0, 1)
    with pytest.raises(ValueError, match=r"60 s at 10\.1 times the rate is more than the trace's 600 s"):
        arena(10.1, 60.0, 1)


def test_calls_of_a_trace_are_long_from_the_first_bucket_edge_on() -> None:
    calls = conversation(3.0, 300.0, 1)

    assert {call.size for call in calls if call.prompt_tokens < 1_024} == {"short"}
    assert {call.size for call in calls if call.prompt_tokens >= 1_024} == {"long"}


def test_the_stretch_of_a_given_trace_depends_on_the_seed(tmp_path: Path) -> None:
    rows = "".join(f"{second},t{second % 5:02},{second + 2},7\n" for second in range(600))
    (tmp_path / ARENA_FILE).write_text("arrived_at_s,tenant,prompt_tokens,output_tokens\n" + rows)
    one, other = (arena(2.0, 60.0, seed, tmp_path) for seed in (1, 2))

    assert len(one) == len(other) == 120
    assert one[0].prompt_tokens != other[0].prompt_tokens
    for before, after in pairwise(one):
        assert after.prompt_tokens == before.prompt_tokens + 1
        assert after.at_s - before.at_s == pytest.approx(0.5)
    assert {(call.tenant, call.output_tokens) for call in one} == {
        (f"t{number:02}", 7) for number in range(5)
    }


def test_calls_of_a_given_conversation_have_its_blocks_and_one_tenant(tmp_path: Path) -> None:
    row = {"timestamp": 1_000_000, "input_length": 600, "output_length": 50, "hash_ids": [0, 9]}
    (tmp_path / CONVERSATION_FILE).write_text(json.dumps(row))
    [call] = conversation(1.0, 3_537.0, 1, tmp_path)

    assert (call.tenant, call.prompt_tokens, call.output_tokens) == (loads.ONE_TENANT, 600, 50)
    assert call.blocks == (0, 9)


def test_no_call_asks_for_more_than_a_worker_has_room_for(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 31_000, "output_length": 2_000, "hash_ids": []}
    (tmp_path / CONVERSATION_FILE).write_text(json.dumps(row))
    [call] = conversation(1.0, 3_537.0, 1, tmp_path)

    assert call.prompt_tokens + call.output_tokens == MAX_MODEL_LEN


def test_a_flood_comes_beside_the_others_and_changes_nothing_of_theirs() -> None:
    calm, flooded = arena(3.0, 60.0, 1), arena(3.0, 60.0, 1, flood_rate=20.0)
    flood = [call for call in flooded if call.tenant == loads.FLOOD]

    assert [call for call in flooded if call.tenant != loads.FLOOD] == calm
    assert len(flood) == pytest.approx(20.0 * 60.0, rel=0.1)
    assert all(before.at_s <= after.at_s for before, after in pairwise(flooded))
    assert len({call.prompt_tokens for call in flood}) > 50


def test_most_of_the_arenas_tenants_are_in_a_minute_of_it() -> None:
    tenants = Counter(call.tenant for call in arena(5.0, 60.0, 1))

    assert len(tenants) > 20


@given(
    st.integers(1, 3_000),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.integers(0, 2**32),
)
def test_a_prompt_has_as_many_tokens_as_the_call_says(
    prompt_tokens: int, blocks: tuple[int, ...], seed: int
) -> None:
    call = Call(1.0, "t00", "short", prompt_tokens, 10, blocks)
    text = prompt(call, seed)

    assert asked(call, seed).request.prompt_tokens == prompt_tokens
    words = [text[start : start + TOKEN_BYTES] for start in range(0, len(text), TOKEN_BYTES)]
    assert all(word[:1] == b" " and word[1:].isalpha() and word.islower() for word in words)
    assert all(len(word) == TOKEN_BYTES for word in words)


def test_equal_blocks_are_equal_text_and_what_follows_is_not() -> None:
    one = Call(1.0, "t00", "long", 2_000, 10, (0, 7, 8))
    other = Call(2.0, "t00", "long", 2_500, 10, (0, 7, 9))
    first, second = asked(one).request.prefix, asked(other).request.prefix
    shared = 2 * BLOCK_TOKENS // KV_BLOCK_TOKENS

    assert first[:shared] == second[:shared]
    assert first[shared] != second[shared]


def test_a_last_block_that_is_cut_short_is_still_equal_text() -> None:
    one, other = (Call(at_s, "t00", "long", 600, 10, (0, 7)) for at_s in (1.0, 2.0))

    assert prompt(one, 1) == prompt(other, 2)


@pytest.mark.parametrize(
    ("other", "seed"),
    [
        (CALL, 2),
        (Call(1.5, "t00", "short", 100, 10), 1),
        (Call(1.0, "t01", "short", 100, 10), 1),
    ],
)
def test_prompts_without_blocks_differ_from_the_first_kv_block_on(other: Call, seed: int) -> None:
    assert prompt(CALL, 1) == prompt(CALL, 1)
    assert asked(CALL, 1).request.prefix[0] != asked(other, seed).request.prefix[0]


def test_the_words_are_many_enough_to_tell_prompts_apart_and_none_is_there_twice() -> None:
    words = loads._WORD_OF

    assert len(words) == len(set(words)) >= 128

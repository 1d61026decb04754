"""Are the traces read as they were published, and are the made-up ones like them?"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev, pvariance

import pytest

from benchmarks.routing.traces import (
    ARENA_FILE,
    ARENA_S,
    BLOCK_TOKENS,
    CONVERSATION_FILE,
    CONVERSATION_S,
    MOST_PROMPT_TOKENS,
    Row,
    made_arena,
    made_conversation,
    read_arena,
    read_conversation,
)
from benchmarks.simulator.loads import quantile

SEEDS = [1, 2, 3]


def reused(rows: Sequence[Row]) -> float:
    """The share of blocks that an unbounded cache would have had."""
    known: set[int] = set()
    found = asked = 0
    for row in rows:
        asked += len(row.blocks)
        found += sum(block in known for block in row.blocks)
        known.update(row.blocks)
    return found / asked


def dispersion(rows: Sequence[Row], seconds: int) -> float:
    """Of the arrivals in a second: variance over mean."""
    arrivals = Counter(int(row.at_s) for row in rows)
    counts = [arrivals[second] for second in range(seconds)]
    return pvariance(counts) / fmean(counts)


def conversation_file(folder: Path, *requests: tuple[int, int, int, list[int]]) -> Path:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = (json.dumps(dict(zip(names, request, strict=True))) + "\n" for request in requests)
    (folder / CONVERSATION_FILE).write_text("".join(lines))
    return folder


def test_a_request_of_mooncake_keeps_its_lengths_and_blocks(tmp_path: Path) -> None:
    folder = conversation_file(tmp_path, (6000, 700, 50, [0, 1]), (9000, 800, 60, [0, 2]))
    first, second = read_conversation(folder, 1)

    assert (first.prompt_tokens, first.output_tokens, first.blocks) == (700, 50, (0, 1))
    assert (second.prompt_tokens, second.output_tokens, second.blocks) == (800, 60, (0, 2))


def test_requests_of_one_step_of_mooncake_are_spread_over_it_by_the_seed(tmp_path: Path) -> None:
    folder = conversation_file(tmp_path, *[(6000, 700, 50, [0, number]) for number in range(200)])
    times_s = [row.at_s for row in read_conversation(folder, 1)]

    assert times_s == sorted(times_s)
    assert all(6.0 <= at_s <= 9.0 for at_s in times_s)
    assert fmean(times_s) == pytest.approx(7.5, abs=0.2)
    assert times_s == [row.at_s for row in read_conversation(folder, 1)]
    assert times_s != [row.at_s for row in read_conversation(folder, 2)]


def test_prompts_that_the_workers_have_no_room_for_are_left_out(tmp_path: Path) -> None:
    folder = conversation_file(tmp_path, (0, 31_000, 50, [0]), (0, 31_001, 50, [0]))

    assert [row.prompt_tokens for row in read_conversation(folder, 1)] == [31_000]


def test_a_request_of_the_arena_is_read_with_its_tenant(tmp_path: Path) -> None:
    (tmp_path / ARENA_FILE).write_text("arrived_at_s,tenant,prompt_tokens,output_tokens\n0.25,t13,13,199\n")

    assert read_arena(tmp_path) == [Row(0.25, "t13", 13, 199)]


@pytest.mark.parametrize("seed", SEEDS)
def test_made_conversations_have_the_statistics_of_mooncakes(seed: int) -> None:
    """Its notice tells of 12,031 requests in 59 min; the figures are those of the 11,105 that fit."""
    rows = made_conversation(seed)
    prompts, outputs = [row.prompt_tokens for row in rows], [row.output_tokens for row in rows]

    assert len(rows) == pytest.approx(11_105, rel=0.05)
    assert fmean(prompts) == pytest.approx(8_462, rel=0.06)
    assert quantile(prompts, 0.5) == pytest.approx(6_093, rel=0.08)
    assert quantile(prompts, 0.99) == pytest.approx(29_381, rel=0.03)
    assert max(prompts) <= MOST_PROMPT_TOKENS
    assert fmean(outputs) == pytest.approx(337, rel=0.06)
    assert quantile(outputs, 0.99) == pytest.approx(1_024, rel=0.1)
    assert reused(rows) == pytest.approx(0.373, rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_made_conversations_come_like_mooncakes_and_repeat_themselves_as_soon(seed: int) -> None:
    rows = made_conversation(seed)
    gaps_s = [after.at_s - before.at_s for before, after in pairwise(rows)]
    minutes = [[row for row in rows if minute * 60 <= row.at_s < minute * 60 + 60] for minute in range(58)]

    assert min(gaps_s) >= 0
    assert rows[-1].at_s < CONVERSATION_S
    assert pstdev(gaps_s) / fmean(gaps_s) == pytest.approx(1.014, rel=0.05)
    assert dispersion(rows, int(CONVERSATION_S)) == pytest.approx(1.04, rel=0.1)
    assert fmean(map(reused, minutes)) == pytest.approx(0.082, rel=0.25)


def test_what_goes_on_begins_with_all_whole_blocks_of_an_earlier_request() -> None:
    whole: set[tuple[int, ...]] = {()}
    known: set[int] = set()
    for row in made_conversation(1):
        assert len(row.blocks) == math.ceil(row.prompt_tokens / BLOCK_TOKENS)
        assert row.blocks[0] == 0
        shared = [block for block in row.blocks if block in known]
        assert row.blocks[: len(shared)] == tuple(shared)
        assert len(shared) < 2 or tuple(shared) in whole
        known.update(row.blocks)
        whole.add(row.blocks[: row.prompt_tokens // BLOCK_TOKENS])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_made_arena_has_the_statistics_of_vtcs(seed: int) -> None:
    rows = made_arena(seed)
    prompts, outputs = [row.prompt_tokens for row in rows], [row.output_tokens for row in rows]
    tenants = Counter(row.tenant for row in rows)
    gaps_s = [after.at_s - before.at_s for before, after in pairwise(rows)]

    assert (len(rows), len(tenants)) == (1_500, 27)
    assert rows[-1].at_s == pytest.approx(ARENA_S)
    assert max(tenants.values()) / 1_500 == pytest.approx(0.197, abs=0.001)
    assert fmean(prompts) == pytest.approx(136, rel=0.08)
    assert quantile(prompts, 0.99) == pytest.approx(929, rel=0.06)
    assert fmean(outputs) == pytest.approx(256, rel=0.06)
    assert quantile(outputs, 0.99) == pytest.approx(785, rel=0.15)
    assert pstdev(gaps_s) / fmean(gaps_s) == pytest.approx(1.104, rel=0.05)
    assert dispersion(rows, int(ARENA_S)) == pytest.approx(1.38, rel=0.25)


@pytest.mark.parametrize("make", [made_conversation, made_arena])
def test_a_seed_makes_the_same_trace_again_and_another_seed_another(make: object) -> None:
    assert callable(make)

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_tenants_of_a_made_arena_come_in_any_order() -> None:
    first, last = made_arena(1)[:100], made_arena(1)[-100:]

    assert len({row.tenant for row in first}) > 10
    assert len({row.tenant for row in last}) > 10

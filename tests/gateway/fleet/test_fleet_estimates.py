"""Is each worker's work for a request told by what it has cached, what was learnt, and what others have?"""

import asyncio
import contextlib

import pytest

from gateway.estimates import Speed, chain, prefill_cost
from gateway.fleet import fleet
from gateway.model import Chain, Worker
from gateway.peers import WorkerShare
from tests.gateway.fleet.workers import Elsewhere, NotingLimit, Workers
from tests.gateway.test_model import job

PREFILL_S = 0.25
LONG = 8192


def prompt(tokens: int) -> Chain:
    found = chain("salt", memoryview(b"x" * 4 * tokens), tokens)
    assert found is not None
    return found


ASKED = job(prompt_tokens=LONG, chain=prompt(LONG))


def own_tokens(of: Workers) -> list[int]:
    """What the prompt costs at each worker."""
    for member in of.fleet.members.values():
        member.speed = Speed(prefill_token_s=PREFILL_S)
    return [int(worker.own_s / PREFILL_S) for worker in of.fleet.workers(ASKED)]


def snapshots(of: Workers) -> dict[str, Worker]:
    return {worker.id: worker for worker in of.fleet.workers(job())}


# Prefix caches


def test_a_prompt_costs_less_where_it_was_sent_before() -> None:
    of = Workers("w0", "w1")
    assert own_tokens(of) == [prefill_cost(LONG)] * 2
    of.fleet.occupy("w1", ASKED).close()
    assert own_tokens(of) == [prefill_cost(LONG), prefill_cost(LONG, LONG - 1)]


def test_a_prompt_is_held_to_cost_what_it_cost_before_it_was_sent() -> None:
    of = Workers("w0")
    for cost in (prefill_cost(LONG), prefill_cost(LONG, LONG - 1)):
        slot = of.fleet.occupy("w0", ASKED)
        assert of["w0"].load.prefill_tokens == cost
        slot.close()


def test_a_prompt_without_a_chain_is_not_remembered() -> None:
    of = Workers("w0")
    of.fleet.occupy("w0", job(prompt_tokens=LONG)).close()
    assert own_tokens(of) == [prefill_cost(LONG)]


def test_a_worker_that_comes_up_has_nothing_cached() -> None:
    of = Workers("w0", "w1", failures=1)
    for id in ("w0", "w1"):
        of.fleet.occupy(id, ASKED).close()
    of.fleet.ill(of["w0"], "silent")
    for id in ("w0", "w1"):
        of.fleet.healthy(of[id])
    assert own_tokens(of) == [prefill_cost(LONG), prefill_cost(LONG, LONG - 1)]


# What is learnt


def test_what_was_learnt_takes_effect_at_each_worker_with_a_tick() -> None:
    of = Workers("w0", "w1")
    before = of["w0"].speed
    for id in ("w0", "w1"):
        of[id].coefficients.first_token(0, 1000, 10.0)
    assert of["w0"].speed == before
    of.fleet.tick()
    assert of["w0"].speed == of["w1"].speed == of["w1"].coefficients.speed != before


def test_a_limit_that_rises_is_told_as_room_and_one_that_does_not_is_not() -> None:
    of = Workers("w0", "w1", most=200)
    for _ in range(2):
        of["w0"].peak = 128
        of.fleet.tick()
        of.clock.now += 1
    assert (of["w0"].limit, of["w1"].limit) == (130, 128)
    assert of.room == ["small"]


async def test_a_fleet_keeps_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "TICK_S", 0.001)
    of, ticked = Workers("w0", most=200), asyncio.Event()
    of.fleet.on_room = lambda model: ticked.set()
    learning = asyncio.create_task(of.fleet.keep_learning())
    try:
        async with asyncio.timeout(10):
            while not ticked.is_set():
                of["w0"].peak = 128
                of.clock.now += 1
                await asyncio.sleep(0)
    finally:
        learning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await learning
    assert of["w0"].limit == 130


# What others have there


def test_what_others_have_is_to_be_done_there_too() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", "w1", others=elsewhere.others)
    of.fleet.occupy("w0", job(prompt_tokens=10))
    elsewhere.has(w0=WorkerShare(2, 1, 500, 70, 1))
    seen = snapshots(of)
    assert (seen["w0"].prefilling, seen["w0"].prefill_tokens, seen["w0"].long_prefills) == (2, 510, 1)
    assert (seen["w1"].prefilling, seen["w1"].prefill_tokens) == (0, 0)


def test_places_that_others_have_are_not_ones_own() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", "w1", most=4, others=elsewhere.others)
    assert of.fleet.capacity("small") == 8
    elsewhere.has(w0=WorkerShare(in_flight=3))
    assert {id: worker.limit for id, worker in snapshots(of).items()} == {"w0": 1, "w1": 4}
    assert of.fleet.capacity("small") == 5


def test_a_worker_at_which_others_have_a_long_prompt_takes_no_more() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", "w1", others=elsewhere.others)
    elsewhere.has(w0=WorkerShare(1, 1, 9000, 1, 1))
    assert {id: worker.takes_long for id, worker in snapshots(of).items()} == {"w0": False, "w1": True}
    assert of.fleet.takes_long("small")
    of.fleet.occupy("w1", job(is_long=True))
    assert not snapshots(of)["w1"].takes_long
    assert not of.fleet.takes_long("small")


def test_prompts_of_others_are_ahead_of_ones_own() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", others=elsewhere.others)
    elsewhere.has(w0=WorkerShare(1, 1, 1000))
    of["w0"].speed = Speed(first_token_s=0.5, prefill_token_s=0.25)
    assert of.fleet.occupy("w0", job(prompt_tokens=10)).prefill_s() == 0.5 + 1010 * 0.25


def test_a_gap_in_which_others_had_a_prompt_there_is_not_one_of_decoding_alone() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", "w1", others=elsewhere.others)
    elsewhere.has(w0=WorkerShare(1, 1, 500), w1=WorkerShare(1, 0, 0, 70))
    of.fleet.note_others()
    assert not of["w0"].load.only_decoded_since(of.clock.now)
    assert of["w1"].load.only_decoded_since(of.clock.now)
    of.clock.now += 1
    assert of["w0"].load.only_decoded_since(of.clock.now)


def test_where_there_are_no_others_there_is_nothing_to_note() -> None:
    of = Workers("w0")
    of.fleet.note_others()
    assert of["w0"].load.only_decoded_since(of.clock.now)


def test_a_limit_is_sought_by_what_all_have_there() -> None:
    elsewhere = Elsewhere()
    of = Workers("w0", others=elsewhere.others)
    of["w0"].adaptive = limit = NotingLimit(100)
    of.fleet.occupy("w0", job())
    elsewhere.has(w0=WorkerShare(in_flight=7, prefilling=2))
    of.fleet.tick()
    assert limit.ticks == [(1000.0, 8)]


def test_others_are_told_of_each_worker_at_which_there_is_something() -> None:
    of = Workers("w0", "w1")
    of.fleet.occupy("w1", job(prompt_tokens=10, expected_output_tokens=20, is_long=True))
    assert of.fleet.shares() == {"w1": WorkerShare(1, 1, 10, 20, 1)}

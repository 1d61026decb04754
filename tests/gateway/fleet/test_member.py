"""Does a worker's snapshot tell what it holds, and does what was learnt of it take effect?"""

import pytest

from gateway.estimates import Prefixes, Speed, Work, chain, prefill_cost
from gateway.fleet import Member
from gateway.model import Chain, Worker
from gateway.peers import WorkerShare
from tests.gateway.fleet.workers import NotingLimit
from tests.gateway.test_model import job

SPEED = Speed(first_token_s=99.0, prefill_token_s=0.25, step_s=99.0, decode_token_s=0.125)


def busy(most: int = 100) -> Member:
    """With three requests; of one the first token came, of one of the others the prompt is long."""
    member = Member("w0", "small", most, up=True)
    member.speed = SPEED
    for prefill, decode in ((100, 10), (20, 5), (7, 3)):
        share = member.load.take(Work(prefill, decode))
    share.first_token(1000.0)
    member.long_prefills = 1
    return member


def prompt(tokens: int) -> Chain:
    found = chain("salt", memoryview(b"x" * 4 * tokens), tokens)
    assert found is not None
    return found


# What it is


def test_a_worker_serves_the_model_it_is_configured_for_before_it_reports() -> None:
    assert Member("w0", "small", 4).models == {"small"}


@pytest.mark.parametrize(
    ("up", "draining", "takes"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_worker_takes_requests_while_it_is_up_and_does_not_drain(
    up: bool, draining: bool, takes: bool
) -> None:
    member = Member("w0", "small", 4, up=up)
    member.draining = draining
    assert member.takes_requests == takes


def test_a_worker_is_down_until_it_has_been_asked() -> None:
    assert not Member("w0", "small", 4).up


def test_a_limit_is_sought_below_the_most_unless_it_is_to_be_that() -> None:
    assert Member("w0", "small", 200).limit == 128
    assert Member("w0", "small", 100, is_adaptive=False).limit == 100


# What it has


def test_a_snapshot_tells_what_the_worker_has_to_do_and_how_long_that_takes() -> None:
    member = busy()
    assert member.in_flight == 3
    assert member.snapshot(own_tokens=40) == Worker(
        id="w0",
        in_flight=3,
        limit=100,
        prefilling=2,
        long_prefills=1,
        takes_long=True,
        prefill_tokens=120,
        prefill_s=30.0,
        decode_s=2.25,
        own_s=10.0,
    )


def test_what_others_have_there_is_to_be_done_first_too_but_takes_none_of_ones_own_places() -> None:
    snapshot = busy().snapshot(beside=WorkerShare(9, 4, 80, 22, 2), limit=12, takes_long=False)
    assert snapshot == Worker(
        id="w0",
        in_flight=3,
        limit=12,
        prefilling=6,
        long_prefills=3,
        takes_long=False,
        prefill_tokens=200,
        prefill_s=50.0,
        decode_s=5.0,
        own_s=0.0,
    )


def test_a_snapshot_does_not_follow_what_happens_later() -> None:
    member = busy()
    before = member.snapshot()
    member.load.take(Work(1, 1))
    assert (before.in_flight, member.snapshot().in_flight) == (3, 4)


def test_others_are_told_of_all_that_this_process_has_there() -> None:
    assert busy().share() == WorkerShare(3, 2, 120, 18, 1)


# What a request costs


def test_a_prompt_costs_as_much_less_as_the_worker_has_of_it() -> None:
    member, prefixes, known = Member("w0", "small", 4), Prefixes(), prompt(4096)
    asked = job(prompt_tokens=8192, chain=prompt(8192))
    assert member.cost(asked, prefixes) == prefill_cost(8192)
    prefixes.note("w0", known)
    assert member.cost(asked, prefixes) == prefill_cost(8192, cached_tokens=4096) < prefill_cost(8192)
    assert Member("w1", "small", 4).cost(asked, prefixes) == prefill_cost(8192)


def test_a_prompt_without_a_chain_costs_its_tokens() -> None:
    assert Member("w0", "small", 4).cost(job(prompt_tokens=50_000), Prefixes()) == prefill_cost(50_000)


# What was learnt


def test_a_speed_is_taken_up_once_a_second() -> None:
    member = Member("w0", "small", 4)
    before = member.speed
    member.coefficients.first_token(0, 1000, 10.0)
    learnt = member.coefficients.speed
    assert (member.speed, learnt != before) == (before, True)
    member.tick(1000.0)
    assert member.speed == learnt


def test_the_limit_is_told_the_most_at_once_since_the_last_time() -> None:
    member = busy()
    member.adaptive = limit = NotingLimit(100)
    member.peak = 9
    member.tick(1000.0)
    assert member.peak == 3  # it still has those
    member.tick(1001.0)
    member.tick(1002.0, WorkerShare(in_flight=5, prefilling=4))
    assert limit.ticks == [(1000.0, 9), (1001.0, 3), (1002.0, 8)]


def test_a_worker_that_was_full_and_was_not_slowed_down_takes_more_and_that_is_told() -> None:
    member = Member("w0", "small", 200, up=True)
    told = []
    for second in range(4):
        member.peak = 128
        told.append(member.tick(1000.0 + second))
    assert (told, member.limit) == ([False, True, True, True], 134)

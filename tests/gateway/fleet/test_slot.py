"""Is a request's place counted once and given back once, and does its answer teach what it may teach?"""

from typing import Any

import pytest

from gateway.estimates import Speed, Work
from gateway.fleet import Member, Slot
from gateway.peers import NOTHING, WorkerShare
from tests.gateway.fleet.workers import NotingCoefficients, NotingLimit
from tests.gateway.test_model import Clock, job

Held = tuple[int, int, int, int, int]
FREE: Held = (0, 0, 0, 0, 0)


class Place:
    """A worker with many places, and what is heard of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.member = Member("w0", "small", 100, up=True)
        self.member.coefficients = self.taught = NotingCoefficients()
        self.member.adaptive = self.limit = NotingLimit(100)
        self.room: list[Held] = []  # what was held whenever room was told of

    def take(self, prefill: int = 100, decode: int = 20, beside: WorkerShare = NOTHING, **of: Any) -> Slot:
        return Slot(self.member, job(**of), Work(prefill, decode), self.clock, self._heard, beside)

    @property
    def held(self) -> Held:
        """Requests, those without a first token, their tokens to read, long ones; tokens to decode."""
        load = self.member.load
        long_prefills = self.member.long_prefills
        return load.requests, load.prefilling, load.prefill_tokens, long_prefills, load.decode_tokens

    def _heard(self, member: Member) -> None:
        assert member is self.member
        self.room.append(self.held)


# Counts


def test_a_slot_counts_until_it_is_closed_and_never_twice() -> None:
    at = Place()
    slot = at.take()
    assert (at.held, at.room) == ((1, 1, 100, 0, 20), [])
    slot.close()
    slot.close()
    assert (at.held, at.room) == (FREE, [FREE])


def test_the_first_token_ends_the_prefill_alone_and_then_there_is_room_for_another() -> None:
    at = Place()
    slot = at.take()
    slot.first_token()
    slot.first_token()
    assert at.held == (1, 0, 0, 0, 20)
    assert at.room == [at.held]
    slot.close()
    assert at.room[1:] == [FREE]


def test_so_does_an_answer_that_is_not_streamed() -> None:
    at = Place()
    slot = at.take()
    slot.prompt_done()
    slot.prompt_done()
    slot.first_token()
    assert at.held == (1, 0, 0, 0, 20)
    assert at.room == [at.held]


@pytest.mark.parametrize("end", [Slot.first_token, Slot.prompt_done])
def test_a_long_prompt_counts_until_it_is_read(end: Any) -> None:
    at = Place()
    slot, short = at.take(is_long=True), at.take(is_long=False)
    assert at.member.long_prefills == 1
    end(short)
    assert at.member.long_prefills == 1
    end(slot)
    end(slot)
    assert at.member.long_prefills == 0
    assert at.room[-1] == (2, 0, 0, 0, 40)  # whoever hears of room finds it
    slot.close()
    assert at.member.long_prefills == 0


def test_a_prompt_that_is_never_read_is_counted_back_with_its_slot() -> None:
    at = Place()
    at.take(is_long=True).close()
    assert (at.held, at.room) == (FREE, [FREE])


@pytest.mark.parametrize("late", [Slot.first_token, Slot.prompt_done])
def test_nothing_counts_after_the_end(late: Any) -> None:
    at = Place()
    slot = at.take()
    slot.close()
    at.clock.now += 1
    late(slot)
    assert (at.held, at.room, at.taught.prompts) == (FREE, [FREE], [])


def test_slots_of_one_worker_add_up() -> None:
    at = Place()
    first, second = at.take(prefill=100, decode=20), at.take(prefill=50, decode=5)
    assert at.held == (2, 2, 150, 0, 25)
    first.close()
    assert at.held == (1, 1, 50, 0, 5)
    assert second.member is at.member


def test_the_most_at_once_is_remembered() -> None:
    at = Place()
    slots = [at.take() for _ in range(3)]
    for slot in slots:
        slot.close()
    at.take()
    assert at.member.peak == 3


# How long a prompt takes


def test_a_prompt_takes_as_long_as_it_and_those_before_it() -> None:
    at = Place()
    at.member.speed = Speed(first_token_s=0.5, prefill_token_s=0.25)
    first = at.take(prefill=2)
    second = at.take(prefill=4)
    at.take(prefill=1000)
    assert (first.prefill_s(), second.prefill_s()) == (1.0, 2.0)
    beside = at.take(prefill=0, beside=WorkerShare(prefill_tokens=8))
    assert beside.prefill_s() == 0.5 + (1006 + 8) * 0.25


# What a stream teaches


def test_a_first_token_teaches_how_long_it_took_and_behind_how_much() -> None:
    at = Place()
    slots = [at.take(prefill=tokens) for tokens in (100, 50)]
    at.clock.now += 2
    slots[0].first_token()
    at.clock.now += 1
    slots[1].first_token()
    slots[1].first_token()
    assert at.taught.prompts == [(0, 100, 2.0), (100, 50, 3.0)]


def test_prompts_of_others_are_ahead_too() -> None:
    at = Place()
    slot = at.take(prefill=50, beside=WorkerShare(3, 1, 70))
    at.clock.now += 1
    slot.first_token()
    assert at.taught.prompts == [(70, 50, 1.0)]


def test_a_first_token_in_no_time_teaches_nothing() -> None:
    at = Place()
    at.take().first_token()
    assert at.taught.prompts == []


def test_an_answer_that_is_not_streamed_teaches_nothing() -> None:
    at = Place()
    slot = at.take()
    at.clock.now += 1
    slot.prompt_done()
    slot.first_token()
    assert at.taught.prompts == []


def test_a_stream_teaches_how_long_its_tokens_took_among_how_many() -> None:
    at = Place()
    slot, other = at.take(prefill=100), at.take(prefill=60)
    at.clock.now += 2
    slot.first_token()
    at.clock.now += 3
    other.first_token()
    at.clock.now += 5
    slot.streamed(40)
    assert at.taught.streams == [(40, 8.0, 1.5, 60)]  # alone at first, of two in the end


def test_streams_of_others_count_among_them() -> None:
    at = Place()
    slot = at.take(beside=WorkerShare(in_flight=7, prefilling=2))
    slot.first_token()
    at.clock.now += 1
    slot.streamed(40)
    assert at.taught.streams == [(40, 1.0, 6.0, 0)]


def test_of_several_sequences_nobody_knows_how_long_each_token_took() -> None:
    at = Place()
    slot = at.take(sequences=2)
    slot.first_token()
    at.clock.now += 1
    slot.streamed(40)
    assert at.taught.streams == []


def test_a_stream_without_a_first_token_teaches_nothing() -> None:
    at = Place()
    slot = at.take()
    at.clock.now += 1
    slot.streamed(40)
    assert at.taught.streams == []


def test_a_stream_teaches_nothing_after_the_end() -> None:
    at = Place()
    slot = at.take()
    slot.first_token()
    at.clock.now += 1
    slot.close()
    slot.streamed(40)
    assert at.taught.streams == []


def test_a_stream_in_no_time_teaches_nothing() -> None:
    at = Place()
    slot = at.take()
    slot.first_token()
    slot.streamed(40)
    assert at.taught.streams == []


def test_a_gap_tells_whether_the_worker_only_decoded_in_it() -> None:
    at = Place()
    slot = at.take()
    at.clock.now = 1005.0
    slot.first_token()
    slot.tokens(1004.5, 1006.0, 1)  # a prompt was read in it
    slot.tokens(1006.0, 1006.25, 1)
    other = at.take()
    slot.tokens(1006.25, 1006.75, 1)  # one is being read
    other.close()
    slot.tokens(1006.75, 1007.75, 4)
    assert at.limit.gaps == [(1.5, False), (0.25, True), (0.5, False), (0.25, True)]

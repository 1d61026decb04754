"""Does the engine schedule like vLLM's: budget, chunks, order, seats, blocks, prefixes, late comers?"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.costs import CROWD, Costs, Work
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.request import Event, Limits, Request

TICK = Costs(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # a second a step, whatever it does


class Recorded(Engine):
    """Keeps the work of its steps in the order in which they were run."""

    def __init__(self, costs: Costs = TICK, **limits: int) -> None:
        fitting = {
            "kv_tokens": 3200,
            "max_model_len": 3200,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 100,
        }
        super().__init__(Limits(**fitting | limits), costs)
        self.works: list[Work] = []

    def _start(self) -> None:
        super()._start()
        if self._current is not None:
            self.works.append(self._current[1].work)


def played(engine: Engine, *requests: Request, at_s: float = 0.0) -> list[Event]:
    """All that happens to these, sent together."""
    for request in requests:
        engine.submit(request, at_s)
    return list(engine.advance(math.inf))


def first_tokens(events: list[Event]) -> dict[Request, float]:
    return {event.request: event.time_s for event in events if event.tokens == 1}


def prefix(name: int, tokens: int) -> tuple[int, ...]:
    return tuple(name * 1000 + place for place in range(tokens // 16))


def test_a_step_costs_the_sum_of_its_work() -> None:
    costs = Costs(0.0, 1.0, 0.01, 0.001, 0.1, 10.0, 0.0001)

    assert costs.of(Work(10, 50.0, 2, 3000)) == pytest.approx(1 + 0.1 + 0.05 + 0.2 + 0.3)
    assert costs.of(Work(0, 0.0, CROWD, 0)) == pytest.approx(1 + 0.1 * CROWD)
    assert costs.of(Work(0, 0.0, CROWD + 3, 0)) == pytest.approx(1 + 0.1 * (CROWD + 3) + 30)


def test_a_lone_request_gets_its_first_token_from_its_prompt_and_one_more_a_step() -> None:
    request = Request(50, 3)

    events = played(Recorded(), request, at_s=5.0)

    assert events == [Event(request, 5.0 + n, 0, n, n == 3) for n in (1, 2, 3)]


def test_requests_pass_the_front_end_one_after_the_other() -> None:
    costs = Costs(0.25, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    engine = Recorded(costs)
    requests = [Request(10, 1) for _ in range(3)]

    told = first_tokens(played(engine, *requests))

    assert [told[request] for request in requests] == [1.25, 2.25, 2.25]


def test_a_long_prompt_is_prefilled_in_chunks_of_the_budget() -> None:
    engine = Recorded()

    events = played(engine, Request(250, 1))

    assert [work.prefill_tokens for work in engine.works] == [100, 100, 50]
    assert [work.attended_tokens for work in engine.works] == [5000, 15000, 11250]
    assert [event.time_s for event in events] == [3.0]


def test_decodes_come_before_prompts_and_leave_them_what_is_left_of_the_budget() -> None:
    engine = Recorded()
    engine.submit(Request(10, 9), 0.0)
    list(engine.advance(3.5))

    played(engine, Request(150, 1), at_s=3.5)

    assert [(work.prefill_tokens, work.decodes) for work in engine.works[4:]] == [
        (0, 1),
        (99, 1),
        (51, 1),
        (0, 1),
        (0, 1),
    ]
    assert engine.works[5].kv_tokens == 10 + 5  # the prompt and the tokens so far


def test_who_comes_during_a_step_waits_for_the_next_but_one() -> None:
    engine = Recorded()
    engine.submit(Request(10, 9), 0.0)
    list(engine.advance(3.5))
    late = Request(10, 1)

    told = first_tokens(played(engine, late, at_s=3.5))

    assert told[late] == 6.0  # the step to 4 is under way, that to 5 planned


def test_an_idle_engine_starts_at_once_again() -> None:
    engine = Recorded()
    played(engine, Request(10, 1))
    late = Request(10, 1)

    assert first_tokens(played(engine, late, at_s=7.5)) == {late: 8.5}


def test_a_step_takes_several_prompts_first_come_first_served() -> None:
    engine = Recorded()
    requests = [Request(60, 1) for _ in range(3)]

    told = first_tokens(played(engine, *requests))

    assert [told[request] for request in requests] == [1.0, 2.0, 2.0]


def test_only_so_many_have_a_seat() -> None:
    engine = Recorded(max_num_seqs=2)
    requests = [Request(10, 3), Request(10, 1), Request(10, 1)]
    for request in requests:
        engine.submit(request, 0.0)

    assert list(engine.advance(0.5)) == []
    assert (engine.running, engine.waiting) == (2, 1)
    told = first_tokens(list(engine.advance(math.inf)))

    assert [told[request] for request in requests] == [
        1.0,
        1.0,
        3.0,
    ]  # seats are free when the caller is told
    assert (engine.running, engine.waiting) == (0, 0)


def test_a_threshold_leaves_room_for_short_prompts_beside_a_long_one() -> None:
    long_one, short = Request(300, 1), Request(30, 1)

    without = first_tokens(played(Recorded(), long_one, short))
    limited = first_tokens(played(Recorded(long_prefill_token_threshold=40), long_one, short))

    assert (without[long_one], without[short]) == (3.0, 4.0)
    assert limited[short] == 1.0
    assert limited[long_one] > without[long_one]


def test_the_threshold_is_ignored_for_a_sole_request() -> None:
    engine = Recorded(long_prefill_token_threshold=40)

    played(engine, Request(250, 1))

    assert [work.prefill_tokens for work in engine.works] == [100, 100, 50]


def test_a_known_prefix_is_not_computed_again() -> None:
    engine = Recorded(max_num_batched_tokens=1000)
    played(engine, Request(200, 1, prefix(1, 200)))

    (event,) = played(engine, Request(100, 1, prefix(1, 96)), at_s=9.0)
    (other,) = played(engine, Request(100, 1, prefix(2, 96)), at_s=19.0)

    assert (event.cached_tokens, other.cached_tokens) == (96, 0)
    assert [work.prefill_tokens for work in engine.works] == [200, 4, 100]
    assert engine.works[1].attended_tokens == 4 * (96 + 2)


def test_of_a_prompt_that_is_known_to_its_end_the_last_block_is_computed() -> None:
    engine = Recorded()
    played(engine, Request(64, 1, prefix(1, 64)))

    (event,) = played(engine, Request(64, 1, prefix(1, 64)), at_s=9.0)

    assert event.cached_tokens == 48


def test_who_finds_no_blocks_waits_even_where_there_are_seats() -> None:
    engine = Recorded(kv_tokens=160, max_model_len=160)
    first, second, third = Request(90, 4), Request(90, 1), Request(10, 1)

    told = first_tokens(played(engine, first, second, third))

    assert told[first] == 1.0
    assert told[second] == 5.0
    assert told[third] == 5.0  # though it would have fitted at once: first come, first served
    assert engine.preemptions == 0


def test_the_youngest_loses_its_blocks_to_a_decode_and_starts_again() -> None:
    engine = Recorded(kv_tokens=96, max_model_len=96)
    old, young = Request(31, 40), Request(31, 20)

    events = played(engine, old, young)

    assert engine.preemptions >= 1
    ends = {event.request: (event.time_s, event.tokens) for event in events if event.finished}
    assert ends[old] == (40.0, 40)  # never held up
    assert ends[young][1] == 20
    assert ends[young][0] > 20.0
    assert [event.tokens for event in events if event.request is young] == list(range(1, 21))
    again = [work.prefill_tokens for work in engine.works if work.prefill_tokens]
    assert again[0] == 62
    assert again[1] > 31  # the prompt and what was generated
    assert engine.kv_usage == 0


def test_others_of_the_step_are_not_held_up_by_a_preemption() -> None:
    engine = Recorded(kv_tokens=112, max_model_len=112)
    first, second, youngest = Request(31, 10), Request(31, 10), Request(31, 5)

    events = played(engine, first, second, youngest)

    ends = {event.request: event.time_s for event in events if event.finished}
    assert (ends[first], ends[second]) == (10.0, 10.0)
    assert engine.preemptions == 1


def test_who_lost_its_blocks_goes_before_those_who_wait() -> None:
    engine = Recorded(kv_tokens=96, max_model_len=96, max_num_seqs=2)
    old, young, third = Request(31, 40), Request(31, 20), Request(10, 1)

    events = played(engine, old, young, third)

    assert engine.preemptions >= 1
    assert [event.time_s for event in events if event.request is old][-1] == 40.0
    assert first_tokens(events)[third] > 40.0  # though a seat and a block were free before


def test_what_was_cached_is_told_as_found_at_first() -> None:
    engine = Recorded(kv_tokens=96, max_model_len=96)
    young = Request(31, 20, prefix(1, 31))

    events = played(engine, Request(31, 40), young)

    assert engine.preemptions >= 1
    assert {event.cached_tokens for event in events if event.request is young} == {0}  # later its own block


def test_what_was_forgotten_with_a_preemption_is_shared_again_afterwards() -> None:
    engine = Recorded(kv_tokens=80, max_model_len=80)
    young = Request(31, 20, prefix(1, 31))

    played(engine, Request(31, 40), young)  # which needs all blocks at its end
    (later,) = played(engine, Request(31, 1, prefix(1, 31)), at_s=99.0)

    assert engine.preemptions >= 1
    assert later.cached_tokens == 16


def test_idle_blocks_of_its_own_prefix_are_no_room_for_the_rest_of_a_prompt() -> None:
    engine = Recorded(kv_tokens=160, max_model_len=160)
    played(engine, Request(64, 1, prefix(1, 64)))
    other, again = Request(70, 10), Request(110, 1, prefix(1, 64))

    told = first_tokens(played(engine, other, again, at_s=10.0))

    assert told[other] == 11.0
    assert told[again] == 21.0


def test_who_finds_no_budget_takes_no_seat() -> None:
    engine = Recorded()
    for tokens in (250, 10):
        engine.submit(Request(tokens, 1), 0.0)

    list(engine.advance(0.0))

    assert (engine.running, engine.waiting) == (1, 1)


def test_the_last_token_of_a_prompt_is_no_decode() -> None:
    engine = Recorded()

    played(engine, Request(101, 1))

    assert [(work.prefill_tokens, work.decodes) for work in engine.works] == [(100, 0), (1, 0)]


def test_who_is_aborted_is_not_heard_of_again_and_gives_back_all() -> None:
    engine = Recorded(max_num_seqs=1)
    running, waiting, coming = Request(10, 9), Request(10, 9), Request(10, 9)
    engine.submit(running, 0.0)
    engine.submit(waiting, 0.0)
    told = list(engine.advance(2.5))
    engine.submit(coming, 2.5)
    assert engine.kv_usage > 0

    for request in (running, waiting, coming, Request(1, 1)):
        engine.abort(request)

    assert {event.request for event in told} == {running}
    assert list(engine.advance(math.inf)) == []
    assert (engine.running, engine.waiting, engine.kv_usage) == (0, 0, 0)
    assert engine.next_s is None


def test_it_says_when_there_may_be_something_to_tell() -> None:
    engine = Recorded(Costs(0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    due = [engine.next_s]
    engine.submit(Request(10, 2), 3.0)
    for until_s in (3.4, 3.5, 4.5, 5.5):
        due.append(engine.next_s)
        list(engine.advance(until_s))
    due.append(engine.next_s)

    assert due == [None, 3.5, 3.5, 4.5, 5.5, None]
    assert engine.steps == 2


@pytest.mark.parametrize("request_", [Request(0, 1), Request(3200, 1), Request(3190, 11)])
def test_what_does_not_fit_into_the_context_is_refused(request_: Request) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Recorded().submit(request_, 0.0)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [({"max_model_len": 97, "kv_tokens": 100}, "KV"), ({"max_num_batched_tokens": 255}, "max_num_seqs")],
)
def test_limits_that_contradict_each_other_are_refused(limits: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Limits(**limits)


arrivals = st.tuples(
    st.floats(0, 20),
    st.integers(1, 120),
    st.integers(1, 30),
    st.integers(0, 3),
    st.one_of(st.none(), st.floats(0, 30)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(arrivals, min_size=1, max_size=25), st.sampled_from([0, 40]))
def test_whatever_comes_each_gets_its_tokens_in_order_and_all_blocks_come_back(
    plan: list[tuple[float, int, int, int, float | None]], threshold: int
) -> None:
    engine = Recorded(kv_tokens=160, max_model_len=160, long_prefill_token_threshold=threshold)
    acts: list[tuple[float, int, Request]] = []
    for time_s, prompt, output, family, abort_s in plan:
        request = Request(prompt, output, prefix(family, prompt))
        acts.append((time_s, 0, request))
        if abort_s is not None:
            acts.append((time_s + abort_s, 1, request))
    events: list[Event] = []
    for time_s, act, request in sorted(acts, key=lambda act: act[:2]):
        events += engine.advance(time_s)
        if act:
            engine.abort(request)
        else:
            engine.submit(request, time_s)
    events += engine.advance(math.inf)

    aborted = {request for _, act, request in acts if act}
    for _, act, request in acts:
        told = [event for event in events if event.request is request]
        assert [event.tokens for event in told] == list(range(1, len(told) + 1))
        if not act and request not in aborted:
            assert len(told) == request.output_tokens
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)
    assert all(work.prefill_tokens + work.decodes <= 100 for work in engine.works)
    assert (engine.running, engine.waiting, engine.kv_usage) == (0, 0, 0)

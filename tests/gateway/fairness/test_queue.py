"""Does the queue do what the naive one does, whatever happens to it?"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.fairness import BANDS, FairQueue, State, Ticket
from tests.gateway.fairness.naive import NaiveQueue
from tests.gateway.fairness.tickets import ticket

# Whole works and weights that are powers of two: no rounding, so the order must be the very same.
WEIGHTS = {"a": 1.0, "b": 0.5, "c": 4.0, "d": 1.0, "e": 2.0}
tenants = st.sampled_from(sorted(WEIGHTS))
models = st.sampled_from(["llama", "qwen"])
lanes = st.integers(0, 2)
works = st.integers(1, 100).map(float)


class Both(RuleBasedStateMachine):
    """The queue and the naive one, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.queue: FairQueue[str] = FairQueue()
        self.naive = NaiveQueue()

    @rule(
        tenant=tenants,
        model=models,
        band=st.sampled_from(BANDS),
        lane=lanes,
        prompt_work=works,
        output_work=works,
        count=st.integers(1, 4),
    )
    def push(self, *, prompt_work: float, output_work: float, count: int, **fields: Any) -> None:
        for _ in range(count):
            new = ticket(
                prompt_work=prompt_work,
                total_work=prompt_work + output_work,
                weight=WEIGHTS[fields["tenant"]],
                arrived_s=self.now_s,
                **fields,
            )
            self.queue.push(new)
            self.naive.push(new)

    @rule(model=models, open_=st.sets(lanes), held=st.sets(tenants, max_size=2), count=st.integers(1, 5))
    def serve(self, model: str, open_: set[int], held: set[str], count: int) -> None:
        for _ in range(count):
            first = self.queue.peek(model, open_.__contains__, held.__contains__)
            assert first is self.naive.peek(model, open_, held)
            if first:
                self.queue.dispatch(first)
                self.naive.dispatch(first)

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def serve_whichever(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.naive.waiting))
        self.queue.dispatch(chosen)
        self.naive.dispatch(chosen)

    @precondition(lambda self: self.naive.running)
    @rule(data=st.data(), work=works)
    def settle(self, data: st.DataObject, work: float) -> None:
        ended = data.draw(st.sampled_from(self.naive.running))
        self.queue.settle(ended, work)
        self.queue.settle(ended, work + 1)  # which does nothing
        self.naive.settle(ended, work)

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.naive.waiting))
        assert self.queue.remove(gone)
        assert not self.queue.remove(gone)
        self.naive.remove(gone)

    @rule(passed_s=st.integers(1, 50))
    def wait(self, passed_s: int) -> None:
        self.now_s += passed_s

    @invariant()
    def the_next_is_the_same(self) -> None:
        for model in ("llama", "qwen"):
            assert self.queue.peek(model) is self.naive.peek(model)

    @invariant()
    def the_same_wait(self) -> None:
        waiting = self.naive.waiting
        assert len(self.queue) == len(waiting)
        assert set(self.queue) == set(waiting)
        assert self.queue.by_tenant == Counter(t.tenant for t in waiting)
        assert +self.queue.waiting_by == Counter((t.model, t.lane, t.label) for t in waiting)
        assert self.queue.by_band == Counter(t.band for t in waiting)
        for model in ("llama", "qwen"):
            assert self.queue.waiting(model) == Counter(t.tenant for t in waiting if t.model == model)

    @invariant()
    def the_same_are_shed(self) -> None:
        assert list(self.queue.victims()) == self.naive.victims()

    def teardown(self) -> None:
        """Nothing is left once all have gone: no tenant, no model."""
        for gone in list(self.queue):
            self.queue.remove(gone)
        for ended in self.naive.running:
            self.queue.settle(ended, 1.0)
        assert not self.queue._schedules
        assert not self.queue.by_tenant
        assert not self.queue._by_model


Both.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTheQueueIsTheNaiveOne = Both.TestCase


def filled(*tickets: Ticket[str]) -> FairQueue[str]:
    queue = FairQueue[str]()
    for each in tickets:
        queue.push(each)
    return queue


def served(queue: FairQueue[str], model: str = "llama") -> list[Ticket[str]]:
    """All tickets in the order in which they are served."""
    order = []
    while first := queue.peek(model):
        queue.dispatch(first)
        order.append(first)
    return order


def test_a_ticket_can_be_pushed_only_once() -> None:
    only = ticket()
    queue = filled(only)

    with pytest.raises(ValueError, match="once"):
        queue.push(only)
    assert len(queue) == 1


def test_a_ticket_that_does_not_wait_cannot_be_dispatched() -> None:
    only = ticket()
    queue = filled(only)
    queue.remove(only)

    with pytest.raises(ValueError, match="waits"):
        queue.dispatch(only)
    assert only.state is State.DONE


def test_a_closed_lane_is_asked_about_once_and_not_for_each_of_its_tickets() -> None:
    queue = filled(*(ticket(tenant, lane=1) for tenant in "abcdefgh" * 10))
    asked: list[int] = []

    def is_open(lane: int) -> bool:
        asked.append(lane)
        return False

    assert queue.peek("llama", is_open) is None
    assert asked == [1]


def test_only_tenants_that_would_be_first_are_asked_whether_they_are_held() -> None:
    queue = filled(*(ticket(tenant) for tenant in "abc" * 10))
    asked: list[str] = []

    def is_held(tenant: str) -> bool:
        asked.append(tenant)
        return tenant == "a"

    first = queue.peek("llama", is_held=is_held)
    assert first
    assert first.tenant == "b"
    assert asked == ["a", "b"]


def test_a_tenant_that_was_held_has_not_lost_its_turn() -> None:
    queue = filled(*(ticket(tenant) for tenant in "aab"))
    queue.peek("llama", is_held=lambda tenant: True)

    assert [first.tenant for first in served(queue)] == ["a", "b", "a"]


def test_models_have_turns_of_their_own() -> None:
    queue = filled(
        *(ticket("a", 1000) for _ in range(3)), ticket("a", model="qwen"), ticket("b", model="qwen")
    )
    served(queue)

    assert [first.tenant for first in served(queue, "qwen")] == ["a", "b"]


def test_a_newcomer_may_be_the_one_to_go() -> None:
    queue = filled(*(ticket("flood") for _ in range(5)), ticket("b"))
    newcomer = ticket("flood")
    queue.push(newcomer)

    assert next(queue.victims()) is newcomer


def test_tickets_may_be_removed_while_victims_are_listed() -> None:
    queue = filled(*(ticket(tenant) for tenant in "abab"))
    for victim in queue.victims():
        queue.remove(victim)

    assert not len(queue)


def test_aging_is_in_the_unit_of_the_work() -> None:
    waited_long, short = ticket(work=1000, arrived_s=0.0), ticket(work=10, arrived_s=2.0)
    by_tokens = FairQueue[str](aging=1000.0)
    for each in (waited_long, short):
        by_tokens.push(each)

    assert by_tokens.peek("llama") is waited_long


def test_what_was_served_elsewhere_puts_a_tenant_back_as_if_it_were_here() -> None:
    queue = filled(ticket("much"), ticket("little"))
    queue.served_elsewhere("llama", "much", 1.0)
    queue.served_elsewhere("llama", "unknown", 1.0)
    queue.served_elsewhere("qwen", "little", 1.0)
    first = queue.peek("llama")
    assert first is not None
    assert first.tenant == "little"


def test_work_elsewhere_weighs_less_for_a_tenant_of_more_weight() -> None:
    queue = filled(ticket("heavy", weight=10.0), ticket("plain"))
    queue.served_elsewhere("llama", "heavy", 5.0)
    queue.served_elsewhere("llama", "plain", 1.0)
    first = queue.peek("llama")
    assert first is not None
    assert first.tenant == "heavy"


def test_the_models_that_some_wait_for_are_listed() -> None:
    queue = filled(ticket(), ticket(model="qwen"))
    assert queue.models() == ["llama", "qwen"]
    queue.remove(next(iter(queue)))
    assert len(queue.models()) == 1

"""Does a process know of the others what they told, and no more than it can rely on?"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.peers.others import STALE_S, TURN_S, Others
from gateway.peers.report import Report, Waiting, WorkerShare, encode

NOTHING = WorkerShare()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(in_flight: int = 0, waiting: int = 0, long_prefills: int = 0, long_waiting: int = 0) -> bytes:
    """A report on worker w0 and model m."""
    return encode(
        Report(
            {"w0": WorkerShare(in_flight, long_prefills=long_prefills)} if in_flight else {},
            {"m": Waiting(waiting, long_waiting)} if waiting or long_waiting else {},
        )
    )


def has_served(**tenants: float) -> bytes:
    """A report on model m."""
    return encode(Report(served={"m": tenants}))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def others(clock: Clock) -> Others:
    return Others("b", clock)


# What they have


def test_what_the_others_have_at_a_worker_is_added_up(others: Others) -> None:
    one = Report({"w0": WorkerShare(3, 2, 100, 50, 1), "w1": WorkerShare(1)}, {"m": Waiting(4, 1)})
    two = Report({"w0": WorkerShare(1, 1, 10, 5, 0)}, {"m": Waiting(2), "n": Waiting(1)})
    others.update({"a": encode(one), "c": encode(two)}, 0.0)
    assert others.worker("w0") == WorkerShare(4, 3, 110, 55, 1)
    assert others.worker("w1") == WorkerShare(1)
    assert others.worker("w2") == NOTHING
    assert others.processes == 3


def test_a_later_report_takes_the_place_of_the_former(others: Others) -> None:
    others.update({"a": told(5, 2), "c": told(1)}, 0.0)
    others.update({"a": told(2), "c": told(1)}, 0.0)
    assert others.worker("w0").in_flight == 3


def test_a_process_that_is_gone_has_nothing(others: Others, clock: Clock) -> None:
    others.update({"a": told(5), "c": told(1)}, 0.0)
    clock.now += STALE_S
    others.update({"c": told(1)}, 0.0)
    assert others.worker("w0").in_flight == 1
    assert others.processes == 2


# What is left for this one


def test_places_that_others_have_are_not_there(others: Others) -> None:
    others.update({"a": told(5), "c": told(2)}, 0.0)
    assert others.ceiling("w0", "m", 16) == 9
    assert others.ceiling("w1", "m", 16) == 16


def test_while_another_waits_nobody_has_more_than_its_part(others: Others) -> None:
    others.update({"a": told(2, waiting=1), "c": told(4)}, 0.0)
    assert others.ceiling("w0", "m", 16) == 6
    assert others.ceiling("w1", "n", 16) == 16, "it waits for another model"
    others.update({"a": told(2), "c": told(4)}, 0.0)
    assert others.ceiling("w0", "m", 16) == 10, "it waits no more"


def test_long_prompts_are_shared_out_by_themselves(others: Others) -> None:
    others.update({"a": told(5, waiting=3), "c": told(2, long_prefills=1)}, 0.0)
    assert others.long_ceiling("w0", "m", 2) == 1
    others.update({"a": told(5, long_waiting=1), "c": told(2, long_prefills=1)}, 0.0)
    assert others.long_ceiling("w0", "m", 3) == 1
    assert others.ceiling("w0", "m", 16) == 9, "who waits for a long prefill does not wait for a place"


def test_what_cannot_be_divided_goes_round(others: Others) -> None:
    """Both processes work out the same, so one of them has it at a time."""
    other = Others("a", Clock())
    turns = []
    for turn in range(40):
        others.update({"a": told(waiting=1)}, turn * TURN_S)
        other.update({"b": told(waiting=1)}, turn * TURN_S)
        turns.append((others.ceiling("w0", "m", 1), other.ceiling("w0", "m", 1)))
    assert set(turns) == {(0, 1), (1, 0)}


def test_at_another_worker_it_goes_round_otherwise(others: Others) -> None:
    others.update({"a": told(waiting=1)}, 0.0)
    assert {others.ceiling(f"w{number}", "m", 1) for number in range(20)} == {0, 1}


# What is not known


def test_before_anything_is_heard_a_process_takes_itself_to_be_alone(others: Others) -> None:
    assert not others.is_fresh
    assert others.ceiling("w0", "m", 16) == 16
    assert others.long_ceiling("w0", "m", 1) == 1


def test_one_that_was_started_with_others_shares_from_the_start(clock: Clock) -> None:
    others = Others("b", clock, siblings=4)
    assert others.ceiling("w0", "m", 16) == 4
    others.update({}, 0.0)
    assert others.processes == 4
    assert others.ceiling("w0", "m", 16) == 16, "they have nothing"


def test_when_nothing_is_heard_any_more_the_number_of_processes_is_remembered(others: Others) -> None:
    others.update({"a": told(5, waiting=3), "c": told(2)}, 0.0)
    others.lose()
    assert others.worker("w0") == NOTHING
    assert others.ceiling("w0", "m", 17) == 6, "the second of three"
    others.update({"a": told(5), "c": told(2)}, 0.0)
    assert others.ceiling("w0", "m", 17) == 10


def test_what_was_heard_three_seconds_ago_is_not_relied_on(others: Others, clock: Clock) -> None:
    others.update({"a": told(5)}, 0.0)
    clock.now += STALE_S - 0.01
    assert others.ceiling("w0", "m", 16) == 11
    clock.now += 0.01
    assert others.ceiling("w0", "m", 16) == 8


def test_who_is_not_back_yet_after_an_outage_is_counted_on_for_a_while(others: Others, clock: Clock) -> None:
    others.update({"a": told(5), "c": told(2)}, 0.0)
    others.lose()
    clock.now += 60
    others.update({"a": told(4)}, 60.0)
    assert (others.worker("w0").in_flight, others.processes) == (6, 3)
    clock.now += STALE_S - 0.01
    others.update({"a": told(4)}, 63.0)
    assert (others.worker("w0").in_flight, others.processes) == (6, 3)
    clock.now += 0.01
    others.update({"a": told(4)}, 63.0)
    assert (others.worker("w0").in_flight, others.processes) == (4, 2)


def test_while_a_report_cannot_be_read_processes_take_equal_shares(
    others: Others, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    others.update({"a": told(5), "c": told(2)}, 0.0)
    for garbage in (b"?", b"??"):
        clock.now += STALE_S
        others.update({"a": garbage, "c": told(2)}, 0.0)
        assert (others.processes, others.is_fresh) == (3, False)
        assert others.ceiling("w0", "m", 18) == 6
    assert [record.getMessage() for record in caplog.records] == [
        "the report of process a cannot be read; workers are shared out equally"
    ]
    others.update({"a": told(1), "c": told(2)}, 0.0)
    assert (others.is_fresh, others.worker("w0").in_flight) == (True, 3)
    others.update({"a": b"?", "c": told(2)}, 0.0)
    others.update({"c": told(2)}, 0.0)
    assert (others.is_fresh, others.processes) == (True, 2)


# What they served


def test_of_a_process_not_heard_before_only_what_it_serves_from_now_on_counts(others: Others) -> None:
    assert others.update({"a": has_served(acme=100.0)}, 0.0) == {}
    assert others.update({"a": has_served(acme=130.0, globex=4.0)}, 0.0) == {
        ("m", "acme"): 30.0,
        ("m", "globex"): 4.0,
    }
    assert others.update({"a": has_served(acme=130.0, globex=4.0)}, 0.0) == {}


def test_what_several_served_is_added_up(others: Others) -> None:
    others.update({"a": has_served(acme=100.0), "c": has_served(acme=1.0)}, 0.0)
    assert others.update({"a": has_served(acme=130.0), "c": has_served(acme=3.0)}, 0.0) == {
        ("m", "acme"): 32.0
    }


def test_sums_that_begin_anew_count_for_nothing_less(others: Others) -> None:
    others.update({"a": has_served(acme=100.0)}, 0.0)
    assert others.update({"a": has_served(acme=10.0)}, 0.0) == {}
    assert others.update({"a": has_served(acme=15.0)}, 0.0) == {("m", "acme"): 5.0}


def test_what_was_served_during_an_outage_is_made_up_for(others: Others, clock: Clock) -> None:
    others.update({"a": has_served(acme=100.0)}, 0.0)
    others.lose()
    clock.now += 60
    assert others.update({}, 0.0) == {}
    assert others.update({"a": has_served(acme=150.0)}, 0.0) == {("m", "acme"): 50.0}


def test_a_process_that_was_forgotten_is_new_when_it_comes_back(others: Others, clock: Clock) -> None:
    others.update({"a": has_served(acme=100.0)}, 0.0)
    clock.now += STALE_S
    others.update({}, 0.0)
    assert others.update({"a": has_served(acme=150.0)}, 0.0) == {}


@given(st.lists(st.tuples(st.sampled_from("ac"), st.sampled_from(["acme", "globex"]), st.floats(0.0, 1e6))))
def test_in_sum_all_is_counted_that_was_served_since_a_process_was_first_heard(
    served: list[tuple[str, str, float]],
) -> None:
    others, sums, counted = Others("b", Clock()), {"a": {"acme": 7.0}, "c": {"globex": 9.0}}, 0.0
    others.update({process: has_served(**of) for process, of in sums.items()}, 0.0)
    for process, tenant, work in served:
        sums[process][tenant] = sums[process].get(tenant, 0.0) + work
        delta = others.update({process: has_served(**of) for process, of in sums.items()}, 0.0)
        assert all(more > 0 for more in delta.values())
        counted += sum(delta.values())
    assert counted == pytest.approx(sum(work for *_, work in served))


# All together


class Process:
    """One with a queue that never ends, and requests of one length each."""

    def __init__(self, name: str, lasts: int) -> None:
        self.name = name
        self.lasts = lasts
        self.ends: list[int] = []
        self.served = 0
        self.others = Others(name, Clock())

    def act(self, now: int, all_: Sequence["Process"], limit: int) -> None:
        self.ends = [end for end in self.ends if end > now]
        self.others.update(
            {of.name: told(len(of.ends), waiting=1) for of in all_ if of is not self}, now * TURN_S
        )
        while len(self.ends) < self.others.ceiling("w0", "m", limit):
            self.ends.append(now + self.lasts)
            self.served += 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_each_with_a_queue_is_served_again_and_again_whoever_comes_first(
    limit: int, lasts: list[int]
) -> None:
    processes = [Process(f"p{number}", of) for number, of in enumerate(lasts)]
    idle = 0
    for now in range(400):
        for process in processes:  # always the same first
            process.act(now, processes, limit)
            assert sum(len(of.ends) for of in processes) <= limit
        idle += limit - sum(len(of.ends) for of in processes)
    longest = max(lasts)
    assert min(process.served for process in processes) >= 400 // longest * limit // len(processes) // 4
    assert idle <= 400 * limit / 2

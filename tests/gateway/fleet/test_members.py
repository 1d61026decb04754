"""Does the fleet know who is well and what each holds, and tell those who wait?"""

from typing import Any

import pytest

from gateway import settings
from gateway.errors import NoWorker
from gateway.fleet import Fleet, Member
from gateway.model import Worker
from tests.gateway.test_model import Clock, job


class Workers:
    """A fleet of some workers for one model, each of them up, and what it told of free places."""

    def __init__(self, *ids: str, up: bool = True, **rules: Any) -> None:
        self.clock = Clock()
        self.room: list[str] = []
        members = [Member(id, "small", 4, up=up) for id in ids]
        self.fleet = Fleet(settings.Fleet(**rules), members, self.clock)
        self.fleet.on_room = self.room.append

    def __getitem__(self, id: str) -> Member:
        return self.fleet.members[id]

    def well(self) -> list[str]:
        return [of.id for of in self.fleet.workers("small")]


def holds(member: Member) -> tuple[int, int, int]:
    return member.in_flight, member.prefill_tokens, member.total_tokens


# Places


def test_a_slot_counts_until_it_is_closed_and_never_twice() -> None:
    of = Workers("w0")
    slot = of.fleet.occupy("w0", job(prompt_tokens=10, max_output_tokens=20))
    assert holds(of["w0"]) == (1, 10, 30)
    assert of.room == []
    slot.close()
    slot.close()
    assert holds(of["w0"]) == (0, 0, 0)
    assert of.room == ["small"]


def test_the_first_token_ends_the_prefill_and_nothing_else() -> None:
    of = Workers("w0")
    slot = of.fleet.occupy("w0", job(prompt_tokens=10, max_output_tokens=20))
    slot.first_token()
    slot.first_token()
    assert holds(of["w0"]) == (1, 0, 30)
    slot.close()
    assert holds(of["w0"]) == (0, 0, 0)


def test_slots_of_one_worker_add_up_and_leave_others_alone() -> None:
    of = Workers("w0", "w1")
    first, second = (of.fleet.occupy("w0", job(prompt_tokens=tokens)) for tokens in (10, 5))
    assert (holds(of["w0"]), holds(of["w1"])) == ((2, 15, 55), (0, 0, 0))
    first.close()
    assert holds(of["w0"]) == (1, 5, 25)
    assert second.member is of["w0"]


def test_a_snapshot_does_not_follow_what_happens_later() -> None:
    of = Workers("w0")
    [before] = of.fleet.workers("small")
    of.fleet.occupy("w0", job())
    assert before == Worker("w0", 0, 4, 0, 0)
    assert of.fleet.workers("small") == [Worker("w0", 1, 4, 10, 30)]


def test_room_is_told_for_every_model_that_the_worker_serves() -> None:
    of = Workers("w0")
    of["w0"].models |= {"adapter"}
    of.fleet.occupy("w0", job()).close()
    assert sorted(of.room) == ["adapter", "small"]


def test_nobody_needs_to_listen() -> None:
    fleet = Fleet(settings.Fleet(), [Member("w0", "small", 4, up=True)])
    fleet.occupy("w0", job()).close()
    assert fleet.is_ready()


# Who serves what


def test_a_worker_serves_the_model_it_is_configured_for_before_it_reports() -> None:
    of = Workers("w0")
    assert of["w0"].models == {"small"}
    with pytest.raises(NoWorker):
        of.fleet.workers("large")


def test_a_worker_that_was_tried_is_left_out() -> None:
    of = Workers("w0", "w1")
    assert [worker.id for worker in of.fleet.workers("small", without=["w0"])] == ["w1"]
    assert of.fleet.workers("small", without=["w0", "w1"]) == []  # well, and tried


def test_where_none_is_well_it_is_said_when_the_next_check_is() -> None:
    of = Workers("w0", up=False, probe_interval_s=3)
    assert not of.fleet.is_ready()
    with pytest.raises(NoWorker) as caught:
        of.fleet.workers("small")
    assert caught.value.retry_after_s == 3
    assert "w0" not in caught.value.message


# Health


def test_a_worker_is_down_until_a_health_check_succeeds_and_then_those_who_wait_hear_of_it() -> None:
    of = Workers("w0", up=False)
    of.fleet.healthy(of["w0"])
    assert (of.well(), of.room, of.fleet.is_ready()) == (["w0"], ["small"], True)
    of.fleet.healthy(of["w0"])
    assert of.room == ["small"]  # it was no news


def test_one_failed_check_is_not_an_end() -> None:
    of = Workers("w0", failures=3)
    for _ in range(2):
        of.fleet.ill(of["w0"], "silent")
    assert of.well() == ["w0"]
    of.fleet.ill(of["w0"], "silent")
    assert not of["w0"].up


def test_failures_count_only_in_a_row() -> None:
    of = Workers("w0", failures=2)
    for _ in range(3):
        of.fleet.ill(of["w0"], "silent")
        of.fleet.healthy(of["w0"])
    assert of.well() == ["w0"]


def test_those_who_wait_for_a_worker_hear_when_it_goes_down_and_only_then() -> None:
    of = Workers("w0", failures=2)
    of.fleet.ill(of["w0"], "silent")
    assert of.room == []
    of.fleet.ill(of["w0"], "silent")
    of.fleet.ill(of["w0"], "silent")
    assert of.room == ["small"]


def test_after_coming_back_a_worker_has_all_its_chances_again() -> None:
    of = Workers("w0", failures=2)
    for _ in range(5):
        of.fleet.ill(of["w0"], "silent")
    of.fleet.healthy(of["w0"])
    of.fleet.ill(of["w0"], "silent")
    assert of.well() == ["w0"]


def test_a_worker_out_of_reach_is_passed_over_for_a_while_although_its_health_check_succeeds() -> None:
    of = Workers("w0", failures=2, ejection_s=10)
    of.fleet.unreachable(of["w0"], "refused")
    assert of.well() == ["w0"]
    of.fleet.unreachable(of["w0"], "refused")
    of.clock.now += 9.9
    of.fleet.healthy(of["w0"])
    assert not of["w0"].up
    of.clock.now += 0.1
    of.fleet.healthy(of["w0"])
    assert of.well() == ["w0"]


def test_a_worker_that_only_failed_its_checks_is_back_with_the_first_that_succeeds() -> None:
    of = Workers("w0", failures=1, ejection_s=10)
    of.fleet.ill(of["w0"], "silent")
    of.fleet.healthy(of["w0"])
    assert of.well() == ["w0"]


def test_requests_of_a_worker_that_went_down_are_still_counted_back() -> None:
    of = Workers("w0", failures=1)
    slot = of.fleet.occupy("w0", job())
    of.fleet.ill(of["w0"], "silent")
    slot.close()
    assert holds(of["w0"]) == (0, 0, 0)


@pytest.mark.parametrize("up", [True, False])
def test_the_log_names_the_worker_and_the_reason(up: bool, caplog: pytest.LogCaptureFixture) -> None:
    of = Workers("w0", up=up, failures=1)
    with caplog.at_level("INFO"):
        if up:
            of.fleet.ill(of["w0"], "status 500")
        else:
            of.fleet.healthy(of["w0"])
    assert [record.getMessage() for record in caplog.records] == [
        "worker w0 is down: status 500" if up else "worker w0 is up"
    ]

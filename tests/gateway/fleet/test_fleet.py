"""Does the fleet know who is there for a request, what each has to do for it, and tell those who wait?"""

import pytest

from gateway import settings
from gateway.errors import NoWorker
from gateway.fleet import Fleet, Member
from tests.gateway.fleet.workers import Workers
from tests.gateway.test_model import job

# Places


def test_a_request_has_its_place_at_the_worker_it_is_sent_to_and_at_no_other() -> None:
    of = Workers("w0", "w1")
    slot = of.fleet.occupy("w0", job(prompt_tokens=10, max_output_tokens=99, expected_output_tokens=20))
    load = of["w0"].load
    assert slot.member is of["w0"]
    assert (load.requests, load.prefill_tokens, load.decode_tokens) == (1, 10, 20)
    assert (of["w1"].in_flight, of.room) == (0, [])
    slot.close()
    assert (of["w0"].in_flight, of.room) == (0, ["small"])


def test_room_is_told_for_every_model_that_the_worker_serves() -> None:
    of = Workers("w0")
    of["w0"].models |= {"adapter"}
    of.fleet.occupy("w0", job()).close()
    assert sorted(of.room) == ["adapter", "small"]


def test_nobody_needs_to_listen() -> None:
    fleet = Fleet(settings.Fleet(), [Member("w0", "small", 4, up=True)])
    assert len(fleet.workers(job())) == 1
    fleet.occupy("w0", job()).close()
    assert fleet.is_ready()


def test_capacity_is_that_of_the_workers_that_take_requests() -> None:
    of = Workers("w0", "w1", "w2")
    assert (of.fleet.capacity("small"), of.fleet.capacity("other")) == (12, 0)
    of["w1"].up = False
    of.fleet.drain({"w2"})
    assert of.fleet.capacity("small") == 4


def test_capacity_is_what_holds_now_and_not_the_most() -> None:
    assert Workers("w0", most=200).fleet.capacity("small") == 128


# Long prompts


def test_so_many_long_prompts_are_taken_at_each_worker() -> None:
    of = Workers("w0", "w1", long=2)
    slots = [of.fleet.occupy(id, job(is_long=True)) for id in ("w0", "w0", "w1")]
    assert [worker.takes_long for worker in of.fleet.workers(job())] == [False, True]
    assert of.fleet.takes_long("small")
    of.fleet.occupy("w1", job(is_long=True))
    assert not of.fleet.takes_long("small")
    slots[0].first_token()
    assert [worker.takes_long for worker in of.fleet.workers(job())] == [True, False]


def test_a_worker_that_takes_no_requests_or_not_this_model_takes_no_long_prompt() -> None:
    of = Workers("w0", "w1")
    assert of.fleet.takes_long("small")
    assert not of.fleet.takes_long("other")
    of["w0"].up = False
    of.fleet.drain({"w1"})
    assert not of.fleet.takes_long("small")


# Who serves what


def test_a_worker_serves_the_model_it_is_configured_for_before_it_reports() -> None:
    of = Workers("w0")
    assert of.well() == ["w0"]
    with pytest.raises(NoWorker):
        of.fleet.workers(job(model="large"))


def test_a_worker_that_was_tried_is_left_out() -> None:
    of = Workers("w0", "w1")
    assert [worker.id for worker in of.fleet.workers(job(), without=["w0"])] == ["w1"]
    assert of.fleet.workers(job(), without=["w0", "w1"]) == []  # well, and tried


def test_where_none_is_well_it_is_said_when_the_next_check_is() -> None:
    of = Workers("w0", up=False, probe_interval_s=3)
    assert not of.fleet.is_ready()
    with pytest.raises(NoWorker) as caught:
        of.fleet.workers(job())
    assert caught.value.retry_after_s == 3
    assert "w0" not in caught.value.message


def test_whoever_looks_for_a_place_is_noticed() -> None:
    of, looks = Workers("w0"), []
    of.fleet.on_work = lambda: looks.append(1)
    of.fleet.workers(job())
    assert looks == [1]


# Draining


def test_a_worker_that_drains_gets_nothing_new_and_ends_what_it_has() -> None:
    of = Workers("w0", "w1")
    slot = of.fleet.occupy("w0", job())
    of.fleet.drain(["w0"])
    assert of.well() == ["w1"]
    assert of["w0"].in_flight == 1
    slot.close()
    assert of["w0"].in_flight == 0


def test_exactly_those_drain_that_are_named() -> None:
    of = Workers("w0", "w1", "w2")
    of.fleet.drain({"w0", "w1"})
    assert of.well() == ["w2"]
    of.fleet.drain({"w1", "w2", "elsewhere"})
    assert of.well() == ["w0"]
    of.fleet.drain(())
    assert of.well() == ["w0", "w1", "w2"]


def test_where_all_drain_there_is_none_for_new_requests() -> None:
    of = Workers("w0", "w1")
    of.fleet.drain(["w0", "w1"])
    assert not of.fleet.is_ready()
    with pytest.raises(NoWorker):
        of.fleet.workers(job())
    of.fleet.drain(["w0"])
    assert of.fleet.is_ready()
    assert of.fleet.workers(job(), without=["w1"]) == []  # well, and tried


def test_those_who_wait_for_a_worker_hear_that_it_drains_or_resumes_once() -> None:
    of = Workers("w0", "w1")
    for ids in (["w0"], ["w0"], [], []):
        of.fleet.drain(ids)
    assert of.room == ["small", "small"]


def test_a_worker_that_drains_is_looked_after_and_may_go_down_and_come_back() -> None:
    of = Workers("w0", failures=1)
    of.fleet.drain(["w0"])
    of.fleet.ill(of["w0"], "silent")
    assert not of["w0"].up
    of.fleet.drain(())
    assert not of.fleet.is_ready()
    of.fleet.drain(["w0"])
    of.fleet.healthy(of["w0"])
    assert (of["w0"].up, of.fleet.is_ready()) == (True, False)
    of.fleet.drain(())
    assert of.well() == ["w0"]


def test_the_log_tells_who_drains_and_who_is_back(caplog: pytest.LogCaptureFixture) -> None:
    of = Workers("w0", "w1")
    with caplog.at_level("INFO"):
        for ids in (["w0"], ["w0"], ["w1"]):
            of.fleet.drain(ids)
    assert [record.getMessage() for record in caplog.records] == [
        "worker w0 is draining",
        "worker w0 takes requests again",
        "worker w1 is draining",
    ]


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


def test_a_worker_that_never_came_up_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    of = Workers("w0", up=False, failures=3)
    for _ in range(9):
        of.fleet.ill(of["w0"], "no such host")
    assert [record.getMessage() for record in caplog.records] == [
        "worker w0 has not come up yet: no such host"
    ]


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
    assert of["w0"].in_flight == 0


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

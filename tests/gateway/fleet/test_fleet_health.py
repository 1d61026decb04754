"""Who gets requests while some of the workers fail, and who comes and goes?"""

import pytest

from gateway import settings
from gateway.errors import NoWorker
from gateway.fleet import WELL, Fleet, Member
from gateway.fleet.health import COLD, WARM_UP_S
from tests.gateway.fleet.workers import Workers
from tests.gateway.test_model import job


def failing(of: Workers, *ids: str) -> None:
    for id in ids:
        for _ in range(3):
            of.fleet.failed(of[id], "broke")


# Standings


def test_a_worker_where_requests_fail_gets_no_more_for_a_while() -> None:
    of = Workers("w0", "w1")
    failing(of, "w0")
    assert (of.well(), of.room) == (["w1"], ["small"])
    assert of.fleet.spare(job()) == ()
    of.clock.now += 10
    assert of.well() == ["w0", "w1"]


def test_the_last_one_goes_on() -> None:
    of = Workers("w0")
    failing(of, "w0")
    assert of.well() == ["w0"]


def test_where_the_others_are_down_who_was_ejected_is_better_than_none() -> None:
    of = Workers("w0", "w1")
    failing(of, "w0")
    of["w1"].up = False
    assert of.well() == ["w0"]
    assert of.fleet.workers(job(), standing=WELL) == []


def test_no_more_than_half_are_ejected_and_others_that_fail_come_last() -> None:
    of = Workers("w0", "w1", "w2")
    failing(of, "w0", "w1")
    assert of.well() == ["w2"]
    assert [worker.id for worker in of.fleet.spare(job())] == ["w1"]
    failing(of, "w2")
    assert of.well() == ["w1", "w2"]  # all that is left is as bad
    assert of.fleet.spare(job()) == ()


def test_workers_of_other_models_are_no_help() -> None:
    fleet = Fleet(settings.Fleet(), [Member("w0", "small", 4, up=True), Member("w1", "large", 4, up=True)])
    for _ in range(3):
        fleet.failed(fleet.members["w0"], "broke")
    assert [worker.id for worker in fleet.workers(job())] == ["w0"]


def test_those_that_were_tried_do_not_tell_who_is_best_of_the_rest() -> None:
    of = Workers("w0", "w1")
    of.fleet.busy(of["w1"], 1)
    assert [worker.id for worker in of.fleet.workers(job(), without=["w0"])] == ["w1"]
    assert of.fleet.workers(job(), without=["w0"], standing=WELL) == []


def test_a_request_that_ends_well_makes_up_for_those_that_failed() -> None:
    of = Workers("w0", "w1")
    for _ in range(5):
        of.fleet.failed(of["w0"], "broke")
        of.fleet.failed(of["w0"], "broke")
        of.fleet.served(of["w0"])
    of.fleet.served(of["w1"])
    assert of.well() == ["w0", "w1"]


def test_who_is_out_of_reach_is_down_and_ejected_and_has_trouble() -> None:
    of = Workers("w0", "w1")
    troubled: list[Member] = []
    of.fleet.on_trouble = troubled.append
    for _ in range(3):
        of.fleet.unreachable(of["w0"], "refused")
    assert troubled == [of["w0"]] * 3
    assert not of["w0"].up
    of.fleet.healthy(of["w0"])
    assert (of["w0"].up, of.well()) == (True, ["w1"])
    of.clock.now += 10
    assert of.well() == ["w0", "w1"]


def test_the_log_says_for_how_long_and_why_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    of = Workers("w0", "w1")
    with caplog.at_level("INFO"):
        failing(of, "w0")
        of.clock.now += 10
        of.fleet.occupy("w0", job()).prove()
    assert [record.getMessage() for record in caplog.records] == [
        "worker w0 gets no requests for 10 s: too many failed there, the last: broke",
        "worker w0 gets requests again",
    ]


# Trials


def test_one_request_is_the_trial_and_its_first_token_passes_it() -> None:
    of = Workers("w0", "w1")
    failing(of, "w0")
    of.clock.now += 10
    trial = of.fleet.occupy("w0", job())
    assert of.well() == ["w1"]
    trial.first_token()
    assert of.well() == ["w0", "w1"]
    trial.prove()  # once is enough
    trial.close()


def test_a_trial_that_showed_nothing_is_followed_by_another() -> None:
    of = Workers("w0", "w1")
    failing(of, "w0")
    of.clock.now += 10
    of.fleet.occupy("w0", job()).close()
    assert of.well() == ["w0", "w1"]
    again = of.fleet.occupy("w0", job())
    assert of.well() == ["w1"]
    of.fleet.failed(of["w0"], "broke")
    again.close()
    of.clock.now += 19
    assert of.well() == ["w1"]
    of.clock.now += 1
    assert of.well() == ["w0", "w1"]


def test_those_who_wait_hear_that_a_worker_may_be_tried() -> None:
    of = Workers("w0", "w1")
    failing(of, "w0")
    of.room.clear()
    of.fleet.tick()
    assert of.room == []
    of.clock.now += 10
    of.fleet.tick()
    assert of.room == ["small"]


def test_once_all_are_sound_nobody_is_asked_how_it_stands() -> None:
    of = Workers("w0", "w1")
    of.fleet.busy(of["w0"], 5)
    assert of.well() == ["w1"]
    of.clock.now += 5
    of.fleet.tick()
    assert of.well() == ["w0", "w1"]
    assert of.fleet.spare(job()) == ()


# Warming up


def test_who_comes_back_to_others_warms_up() -> None:
    of = Workers("w0", "w1", most=100, failures=1)
    of.fleet.ill(of["w0"], "silent")
    of.fleet.healthy(of["w0"])
    assert (of["w0"].limit, of["w1"].limit) == (100 * COLD, 100)
    of.clock.now += WARM_UP_S
    of.fleet.tick()
    assert of["w0"].limit == 100


def test_who_has_passed_its_trial_warms_up() -> None:
    of = Workers("w0", "w1", most=100)
    failing(of, "w0")
    of.clock.now += 10
    of.fleet.occupy("w0", job()).prove()
    assert of["w0"].limit == 100 * COLD


def test_who_is_alone_has_no_time_for_that() -> None:
    of = Workers("w0", most=100, failures=1)
    of.fleet.ill(of["w0"], "silent")
    of.fleet.healthy(of["w0"])
    assert of["w0"].limit == 100


def test_at_the_start_all_are_as_warm_as_they_are() -> None:
    of = Workers("w0", "w1", up=False, most=100)
    of.fleet.healthy(of["w0"])
    of.fleet.healthy(of["w1"])
    assert (of["w0"].limit, of["w1"].limit) == (100, 100)


def test_others_hear_of_each_place_that_warming_up_brings() -> None:
    of = Workers("w0", "w1", most=100, failures=1)
    of.fleet.ill(of["w0"], "silent")
    of.fleet.healthy(of["w0"])
    of.room.clear()
    of.clock.now += WARM_UP_S / 2
    of.fleet.tick()
    assert (of["w0"].limit, of.room) == (55, ["small"])


# Who comes and goes


def test_a_worker_that_is_added_gets_requests_once_it_is_up() -> None:
    of = Workers("w0")
    of.fleet.add(new := Member("w1", "small", 4))
    assert of.well() == ["w0"]
    of.fleet.healthy(new)
    assert of.well() == ["w0", "w1"]


def test_a_worker_that_leaves_ends_what_it_has_and_is_gone_then() -> None:
    of = Workers("w0", "w1")
    left: list[Member] = []
    of.fleet.on_left = left.append
    leaving, slot = of["w0"], of.fleet.occupy("w0", job())
    of.fleet.retire(leaving)
    of.fleet.drain(())  # what drains is said by others, what leaves is not
    assert (of.well(), left, set(of.fleet.members)) == (["w1"], [], {"w0", "w1"})
    slot.close()
    of.fleet.tick()
    assert (left, set(of.fleet.members)) == ([leaving], {"w1"})
    of.fleet.tick()
    assert left == [leaving]


def test_a_worker_without_requests_is_gone_at_once_and_those_who_wait_for_it_hear_of_it() -> None:
    of = Workers("w0")
    left: list[Member] = []
    of.fleet.on_left = left.append
    of.fleet.contexts.note("w0", {"small": 10})
    of.fleet.retire(of["w0"])
    assert (len(left), of.room) == (1, ["small"])
    with pytest.raises(NoWorker):
        of.fleet.workers(job())


def test_another_worker_may_have_the_name_of_one_that_leaves() -> None:
    of = Workers("w0")
    slot = of.fleet.occupy("w0", job())
    of.fleet.retire(of["w0"])
    of.fleet.add(new := Member("w0", "small", 4, up=True))
    slot.close()
    of.fleet.tick()
    assert of["w0"] is new
    assert of.well() == ["w0"]

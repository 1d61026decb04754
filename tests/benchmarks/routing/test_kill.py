"""Is a worker killed and brought back when it is to be, and who is counted as lost?"""

import threading
from typing import cast

import pytest

from benchmarks.routing import kill
from benchmarks.routing.kill import Kill
from benchmarks.routing.workers import Workers
from tests.benchmarks.routing.made import answer


class FakeWorkers:
    def __init__(self) -> None:
        self.acts: list[tuple[str, int]] = []

    def kill(self, index: int) -> None:
        self.acts.append(("kill", index))

    def relaunch(self, index: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.acts.append(("relaunch", index))

    def wait_ready(self, index: int) -> None:
        self.acts.append(("wait", index))


async def test_a_worker_is_killed_at_its_time_and_is_back_after_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = FakeWorkers()

    up_s = await Kill(at_s=5.0).conduct(cast(Workers, workers), speed=100.0)

    assert workers.acts == [("kill", 0), ("relaunch", 0), ("wait", 0)]
    assert up_s >= 5.0 + kill.DOWN_S  # virtual seconds, whatever the speed


def test_waits_are_compared_with_those_before_the_kill() -> None:
    answers = [
        answer(0.5, 9.0),  # warming up
        answer(2.0, 0.1),
        answer(3.0, 0.05),
        answer(4.0, 5.0, size="long"),
        answer(11.0, 0.4),
        answer(19.0, 0.3),
        answer(23.9, 0.2),
        answer(24.1, 0.15),
        answer(24.2, None, "gave_up"),
    ]

    found = Kill(at_s=10.0).figures(answers, warm_up_s=1.0, up_s=19.0)

    assert found["before_p99_s"] == 0.1
    assert found["down_to_before"] == pytest.approx(4)
    assert found["grace_to_before"] == pytest.approx(3)
    assert found["after_to_before"] == pytest.approx(1.5)


def test_nobody_is_compared_where_nobody_was_answered() -> None:
    found = Kill(at_s=10.0).figures([answer(24.1)], warm_up_s=1.0, up_s=11.0)
    assert (found["before_p99_s"], found["after_to_before"]) == (None, None)


def test_only_who_was_mid_stream_on_it_may_be_lost() -> None:
    answers = [
        answer(9.0, 0.1, "cut", "w0"),
        answer(9.5, 0.1, "cut", "w0"),
        answer(9.6, None, "failed", "w0"),
        answer(9.7, 0.1, "cut", "w2"),
        answer(9.8, None, "failed", ""),
        answer(9.9, None, "shed", ""),
    ]

    found = Kill(at_s=10.0).figures(answers, warm_up_s=1.0, up_s=19.0)

    assert (found["cut_on_it"], found["unanswered_on_it"], found["lost_otherwise"]) == (2, 1, 3)


def test_where_nobody_tells_of_workers_who_was_cut_had_been_on_it() -> None:
    found = Kill(at_s=10.0).figures([answer(9.0, 0.1, "cut", "")], warm_up_s=1.0, up_s=19.0)
    assert (found["cut_on_it"], found["lost_otherwise"]) == (1, 0)

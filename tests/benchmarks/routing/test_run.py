"""Does one load through one arm give its figures, in the workers' own time?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from benchmarks.routing import kill
from benchmarks.routing import run as module
from benchmarks.routing.arms import ARMS, OPEN
from benchmarks.routing.caller import Answer
from benchmarks.routing.kill import Kill
from benchmarks.routing.loads import FLOOD, Call, mixed
from benchmarks.routing.results import QUANTILES
from benchmarks.routing.run import Case, Course, capacity, run
from benchmarks.routing.workers import Engines, Workers
from deploy.services import ServiceFailed
from tests.benchmarks.routing.made import answer

CASE = Case("mixed", "0.7", ARMS["gateway:least_requests"], seed=4)
ENGINES = Engines(count=2, speed=2.0)
MIXED = mixed(rate=20.0, lasts_s=2.0, seed=1)


def faked(monkeypatch: pytest.MonkeyPatch, answers: Sequence[Answer]) -> list[tuple[Sequence[Call], float]]:
    """Callers who get these answers. Returns what they were to play, with their patience."""
    played = []

    async def play(
        url: str, keys: Mapping[str, str], model: str, calls: Sequence[Call], patience_s: float, seed: int
    ) -> list[Answer]:
        played.append((calls, patience_s))
        return list(answers)

    monkeypatch.setattr(module, "play", play)
    return played


def test_a_load_is_played_and_every_call_answered() -> None:
    found = run(CASE, Course(MIXED, 2.0, 0.5, 60.0), ENGINES, number=1)

    counted = [call for call in MIXED if call.at_s >= 0.5]
    assert (found.scenario, found.load, found.arm, found.seed) == ("mixed", "0.7", CASE.arm.name, 4)
    assert found.figures["sizes"]["all"]["n"] == len(counted)
    assert found.figures["failed_share"] == found.figures["shed_share"] == 0
    assert found.figures["wasted_tokens"] == 0
    assert found.workers_late_s > 0
    assert found.client_late_s == found.figures["late_max_s"]
    assert len(found.ttft_s["short"]) == QUANTILES + 1
    assert "kill" not in found.figures
    assert "others" not in found.figures


def test_calls_are_sent_in_the_workers_time_and_told_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    late = answer(3.0, 1.0)  # as the callers saw it, at half the time
    played = faked(monkeypatch, [late, answer(4.0, None, "gave_up")])
    calls = [Call(6.0, "t00", "short", 100, 2), Call(8.0, "t00", "short", 100, 2)]

    found = run(CASE, Course(calls, 10.0, 0.0, 5.0), ENGINES, number=1)

    [(sent, patience_s)] = played
    assert ([call.at_s for call in sent], patience_s) == ([3.0, 4.0], 2.5)
    assert found.figures["sizes"]["short"]["ttft_p99_s"] == 2.0
    assert found.figures["sizes"]["short"]["tpot_p99_s"] == pytest.approx(0.02)
    assert found.ttft_s == {"short": [2.0] * (QUANTILES + 1), "long": []}


@pytest.mark.parametrize(("late_s", "usable"), [(0.0, True), (31.0, False)])
def test_a_run_in_which_the_client_was_late_is_marked(
    late_s: float, usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time = answer(1.0)
    faked(monkeypatch, [replace(in_time, sent_s=in_time.sent_s + late_s)])
    monkeypatch.setattr(module, "MAX_LATE_S", 30.0)

    found = run(CASE, Course([in_time.call], 10.0, 0.0, 5.0), ENGINES, number=1)

    assert found.client_late_s == ENGINES.speed * late_s
    assert found.usable is usable


def test_a_run_in_which_workers_were_late_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, [answer(1.0)])
    monkeypatch.setattr(Workers, "late_s", lambda self: 31.0)
    monkeypatch.setattr(module, "MAX_LATE_S", 30.0)

    found = run(CASE, Course([answer(1.0).call], 10.0, 0.0, 5.0), ENGINES, number=1)

    assert (found.workers_late_s, found.usable) == (31.0, False)


def test_a_load_with_a_flood_tells_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        answer(0.1, 5.0, tenant="t00"),
        answer(0.6, 0.2, tenant="t00"),
        answer(0.7, 0.3, tenant="t01"),
        answer(0.8, 4.0, tenant=FLOOD),
    ]
    faked(monkeypatch, answers)
    calls = [each.call for each in answers]

    found = run(CASE, Course(calls, 2.0, 0.5, 60.0), Engines(count=1), number=1)

    assert found.figures["others"]["n"] == 2
    assert found.figures["others"]["ttft_p99_s"] == 0.3


def test_a_worker_is_killed_and_brought_back_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "DOWN_S", 0.5)
    calls = mixed(rate=10.0, lasts_s=4.0, seed=1)

    found = run(CASE, Course(calls, 4.0, 0.0, 60.0, Kill(at_s=1.0)), Engines(count=2), number=1)

    assert found.figures["wasted_tokens"] is None  # the killed one has forgotten
    assert found.figures["kill"]["up_s"] >= 1.5
    assert found.figures["kill"]["before_p99_s"] > 0


def test_an_arm_that_answers_nobody_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, [answer(1.0, None, "failed")])
    with pytest.raises(ServiceFailed, match=r"no call was answered[\s\S]*arm\.log"):
        run(CASE, Course(MIXED, 2.0, 0.0, 60.0), ENGINES, number=1)


def test_capacity_is_told_in_the_workers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def saturate(
        url: str, key: str, model: str, calls: object, in_flight: int, lasts_s: float
    ) -> float:
        asked.append((in_flight, lasts_s))
        return 30.0

    monkeypatch.setattr(module, "saturate", saturate)

    assert capacity(ARMS[f"gateway:least_requests:{OPEN}"], ENGINES, 8.0, seed=1) == 15.0
    assert asked == [(128, 4.0)]


def test_capacity_is_what_workers_serve_at_most() -> None:
    found = capacity(ARMS[f"gateway:least_requests:{OPEN}"], Engines(count=1, speed=2.0), 6.0, seed=1)
    assert found > 0

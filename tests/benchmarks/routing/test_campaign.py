"""Are all runs made, in an order that is fair, and what stands in the way told?"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import CannotStart
from benchmarks.routing import campaign as module
from benchmarks.routing import rivals
from benchmarks.routing.arms import Arm
from benchmarks.routing.caller import NotServed
from benchmarks.routing.campaign import Campaign, capacity_of, played, prepare
from benchmarks.routing.results import Run
from benchmarks.routing.rivals import Rival
from benchmarks.routing.run import Case, Course
from benchmarks.routing.scenarios import LEAST_REQUESTS, LOADS, OURS, ROUND_ROBIN, SCENARIOS, Setting
from benchmarks.routing.workers import Engines
from deploy.services import ServiceFailed
from tests.benchmarks.routing.made import run as made

SETTING = Setting(math.nan, seconds=2.0, warm_up_s=1.0)
SMALL = Campaign(["mixed"], [OURS, ROUND_ROBIN], [1, 2], None, Engines(), SETTING)


class Rig:
    """Instead of programs: what was asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Exception | None = None) -> None:
        self.played: list[tuple[Case, Course, Engines, int]] = []
        self.saturated: list[tuple[str, int]] = []
        self.installed: list[str] = []
        self.fails = fails
        monkeypatch.setattr(module, "run", self._run)
        monkeypatch.setattr(module, "capacity", self._capacity)
        monkeypatch.setattr(rivals, "installed", self._installed)

    def _run(self, case: Case, course: Course, engines: Engines, number: int) -> Run:
        self.played.append((case, course, engines, number))
        if self.fails is not None:
            raise self.fails
        return made(case.scenario, case.load, case.arm.name, case.seed, number=number)

    def _capacity(self, arm: Arm, engines: Engines, lasts_s: float, seed: int) -> float:
        self.saturated.append((arm.name, seed))
        return 40.0

    def _installed(self, rival: Rival) -> Path:
        self.installed.append(rival.package)
        return Path(rival.program)


def measured(campaign: Campaign) -> tuple[float | None, list[Run]]:
    """As the command does it."""
    prepare(campaign)
    capacity_rps = capacity_of(campaign)
    return capacity_rps, list(played(campaign, capacity_rps, lambda text: None))


def test_a_seed_meets_all_arms_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)

    capacity_rps, runs = measured(SMALL)

    order = [(1, OURS), (1, ROUND_ROBIN), (2, OURS), (2, ROUND_ROBIN)]
    assert [(one.seed, one.arm) for one in runs] == order
    assert (capacity_rps, rig.saturated) == (40.0, [(LEAST_REQUESTS, 1)])
    assert [number for _, _, _, number in rig.played] == [1, 2, 3, 4]


def test_each_run_is_told_before_it_begins_and_given_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, said = Rig(monkeypatch), list[str]()
    runs = played(SMALL, 40.0, said.append)

    next(runs)

    assert said == [f"1/4 mixed, 0.7, {OURS}, seed 1"]
    assert len(rig.played) == 1


def test_both_arms_get_the_same_load_of_the_measured_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    measured(replace(SMALL, setting=replace(SETTING, seconds=60.0)))
    courses = [course for _, course, _, _ in rig.played]
    assert courses[0] == courses[1]
    assert courses[0] != courses[2]
    assert len(courses[0].calls) == pytest.approx(0.7 * 40.0 * 61.0, rel=0.1)


def test_a_rate_that_is_named_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    capacity_rps, _ = measured(replace(SMALL, rate=7.0))
    assert capacity_rps == pytest.approx(10.0)
    assert rig.saturated == []


def test_a_scenario_that_goes_by_no_capacity_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    capacity_rps, _ = measured(replace(SMALL, scenarios=["arena"], seeds=[1]))
    assert (capacity_rps, rig.saturated) == (None, [])
    assert {engines.count for _, _, engines, _ in rig.played} == {1}


def test_each_scenario_has_arms_and_loads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Rig(monkeypatch)
    _, runs = measured(replace(SMALL, scenarios=["overload", "kill"], arms=[], seeds=[1]))
    overload = [(load, arm) for load in LOADS for arm in SCENARIOS["overload"].arms]
    assert [(one.load, one.arm) for one in runs if one.scenario == "overload"] == overload
    assert [one.arm for one in runs if one.scenario == "kill"] == list(SCENARIOS["kill"].arms)


def test_rivals_are_installed_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    prepare(replace(SMALL, arms=[]))
    assert rig.played == []
    assert sorted(rig.installed) == ["sglang-router", "vllm-router"]


def test_workers_of_others_are_warmed_up_by_a_run_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    _, runs = measured(replace(SMALL, engines=Engines(urls=("http://127.0.0.1:1",))))
    assert rig.played[0][0] == rig.played[1][0]
    assert [one.figures["number"] for one in runs] == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [ServiceFailed("it ended"), NotServed("it ended"), OSError("it ended")])
def test_what_could_not_be_measured_is_told_with_the_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rig(monkeypatch, error)
    with pytest.raises(CannotStart, match=f"mixed, 0.7, {OURS}, seed 1: it ended"):
        measured(SMALL)


def test_parameters_name_neither_folders_nor_addresses() -> None:
    engines = Engines(urls=("http://10.1.1.1:8000",))
    setting = replace(SETTING, traces=Path("/somewhere"))

    found: dict[str, Any] = replace(SMALL, engines=engines, setting=setting).parameters()

    assert (found["traces"], found["engines"]["urls"]) == (True, 1)
    assert (found["seeds"], found["seconds"], found["warm_up_s"]) == ([1, 2], 2.0, 1.0)
    assert "somewhere" not in str(found)


def test_the_arms_named_are_those_of_all_scenarios() -> None:
    names: Sequence[str] = [arm.name for arm in SMALL.arms_of(SCENARIOS["kill"])]
    assert names == [OURS, ROUND_ROBIN]

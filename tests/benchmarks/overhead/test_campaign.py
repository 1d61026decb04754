"""Is everybody measured there and back, and what stands in the way told?"""

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import CannotStart
from benchmarks.overhead import campaign as module
from benchmarks.overhead import contenders
from benchmarks.overhead.campaign import Campaign, measured, prepare, programs
from benchmarks.overhead.contenders import (
    CONTENDERS,
    DIRECT,
    LITELLM,
    MEMORY,
    NGINX,
    PHASES,
    PLAIN,
    REDIS,
    STREAM,
    TWO_PROCESSES,
    VLLM_ROUTER,
    Contender,
)
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.phases import Plan, Turn
from benchmarks.overhead.results import Result
from deploy.services import ServiceFailed

CPUS = frozenset(os.sched_getaffinity(0))


def campaign(*names: str, phases: tuple[str, ...] = PHASES, rounds: int = 1) -> Campaign:
    return Campaign(names, phases, rounds, Plan(1, 4), CPUS, CPUS)


def test_odd_rounds_go_forwards_and_even_ones_back() -> None:
    order = campaign(DIRECT, NGINX, REDIS, rounds=3).order()
    assert [(number, each.name) for number, each in order] == [
        *((1, DIRECT), (1, NGINX), (1, REDIS)),
        *((2, REDIS), (2, NGINX), (2, DIRECT)),
        *((3, DIRECT), (3, NGINX), (3, REDIS)),
    ]


def test_each_has_its_own_phases_in_one_order() -> None:
    asked = campaign(phases=("stream", "plain", "scaling"))
    assert asked.phases_of(CONTENDERS[REDIS]) == ["plain", "stream", "scaling"]
    assert asked.phases_of(CONTENDERS[LITELLM]) == ["plain", "stream"]
    assert asked.phases_of(CONTENDERS[TWO_PROCESSES]) == ["scaling"]


def test_who_has_no_phase_is_left_out() -> None:
    assert list(campaign(DIRECT, TWO_PROCESSES, phases=(PLAIN,)).order()) == [(1, CONTENDERS[DIRECT])]


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        ((MEMORY,), ["wrk", "setpriv", "taskset"]),
        ((NGINX, VLLM_ROUTER), ["wrk", "setpriv", "taskset", "nginx"]),
        ((TWO_PROCESSES,), ["wrk", "setpriv", "taskset", "redis-server"]),
    ],
)
def test_only_what_is_needed_has_to_be_there(names: tuple[str, ...], needed: list[str]) -> None:
    assert programs(campaign(*names)) == needed


def test_what_is_missing_is_told_with_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "found", lambda program: None if program != "wrk" else "it")
    with pytest.raises(CannotStart) as caught:
        prepare(campaign(NGINX), lambda text: None)
    assert str(caught.value) == ("not installed: setpriv, taskset, nginx (apt-get install util-linux nginx)")


def test_others_are_installed_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def installed(contender: Contender) -> Path:
        asked.append(contender.name)
        return Path("program")

    monkeypatch.setattr(contenders, "installed", installed)
    prepare(campaign(VLLM_ROUTER, DIRECT, LITELLM), lambda text: None)
    assert asked == [VLLM_ROUTER, LITELLM]


def test_who_cannot_be_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(contender: Contender) -> Path:
        raise ServiceFailed("no such version")

    monkeypatch.setattr(contenders, "installed", installed)
    with pytest.raises(CannotStart, match="vllm-router: no such version"):
        prepare(campaign(VLLM_ROUTER), lambda text: None)


def test_a_phase_that_goes_wrong_ends_the_turn_and_not_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(turn: Turn) -> Any:
        raise Invalid("of 10 requests failed: 3 read")

    monkeypatch.setattr(module, "RUN", {PLAIN: lambda turn: {"requests_seen": 1.0}, STREAM: cut})
    said: list[str] = []

    results = list(measured(campaign(DIRECT, rounds=2), said.append))

    problem = "stream: of 10 requests failed: 3 read"
    assert results == [
        Result(1, DIRECT, {PLAIN: {"requests_seen": 1.0}}, problem),
        Result(2, DIRECT, {PLAIN: {"requests_seen": 1.0}}, problem),
    ]
    assert said == ["1/2 round 1, direct", "2/2 round 2, direct"]


@pytest.mark.parametrize("error", [ServiceFailed("it ended"), OSError("it ended"), Invalid("it ended")])
def test_who_does_not_start_has_a_problem(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*asked: object) -> None:
        raise error

    monkeypatch.setattr(module, "running_contender", fails)
    [result] = measured(campaign(NGINX), lambda text: None)
    assert result == Result(1, NGINX, {}, "it ended")


def test_without_workers_nobody_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise ServiceFailed("the workers ended")

    monkeypatch.setattr(module, "running_workers", fails)
    with pytest.raises(CannotStart, match="the workers ended"):
        list(measured(campaign(NGINX), lambda text: None))

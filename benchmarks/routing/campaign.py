"""Which runs are there, and in which order? Each scenario's arms, seed after seed."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import httpx

from benchmarks.command import CannotStart
from benchmarks.routing import rivals
from benchmarks.routing.arms import ARMS, GATEWAY, Arm
from benchmarks.routing.caller import NotServed
from benchmarks.routing.results import Run
from benchmarks.routing.run import Case, capacity, run
from benchmarks.routing.scenarios import BUSY, LEAST_REQUESTS, PATIENCE_S, SCENARIOS, Scenario, Setting
from benchmarks.routing.workers import Engines
from deploy.services import ServiceFailed

CAPACITY_S = 20.0


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is asked for."""

    scenarios: Sequence[str]
    arms: Sequence[str]  # none: each scenario's own
    seeds: Sequence[int]
    rate: float | None  # requests a second of the mixed load; None: BUSY of the measured capacity
    engines: Engines
    setting: Setting

    def arms_of(self, scenario: Scenario) -> list[Arm]:
        return [ARMS[name] for name in self.arms or scenario.arms]

    def cases(self) -> Iterator[Case]:
        """A seed meets all arms of a scenario before the next one does, so that drift meets all alike."""
        for name in self.scenarios:
            scenario = SCENARIOS[name]
            for seed in self.seeds:
                for load in scenario.loads:
                    for arm in self.arms_of(scenario):
                        yield Case(name, load, arm, seed)

    def parameters(self) -> dict[str, Any]:
        """As JSON values; of the traces only whether there were any, of workers' URLs how many."""
        return {
            "scenarios": list(self.scenarios),
            "arms": list(self.arms),
            "seeds": list(self.seeds),
            "rate": self.rate,
            "seconds": self.setting.seconds,
            "warm_up_s": self.setting.warm_up_s,
            "traces": self.setting.traces is not None,
            "patience_s": PATIENCE_S,
            "engines": asdict(self.engines) | {"urls": len(self.engines.urls)},
        }


def prepare(campaign: Campaign) -> None:
    """Have all rivals installed before anything is measured. Raises CannotStart."""
    routers = {arm.router for name in campaign.scenarios for arm in campaign.arms_of(SCENARIOS[name])}
    with _telling("the rivals"):
        for router in sorted(routers - {GATEWAY}):
            rivals.installed(rivals.RIVALS[router])


def capacity_of(campaign: Campaign) -> float | None:
    """Requests a second of the mixed load; None if no scenario goes by it. Raises CannotStart."""
    if not any(SCENARIOS[name].by_capacity for name in campaign.scenarios):
        return None
    if campaign.rate is not None:
        return campaign.rate / BUSY
    with _telling("the capacity"):
        return capacity(ARMS[LEAST_REQUESTS], campaign.engines, CAPACITY_S, campaign.seeds[0])


def played(campaign: Campaign, capacity_rps: float | None, say: Callable[[str], None]) -> Iterator[Run]:
    """All runs, each as soon as it is over. Raises CannotStart.

    say: is told of each before it begins.
    """
    setting = replace(campaign.setting, capacity_rps=math.nan if capacity_rps is None else capacity_rps)
    cases = list(campaign.cases())
    if not campaign.engines.are_ours:
        say("a first run that does not count: workers compile their kernels")
        _run(cases[0], setting, campaign.engines, 0)
    for number, case in enumerate(cases, 1):
        say(f"{number}/{len(cases)} {case}")
        yield _run(case, setting, campaign.engines, number)


def _run(case: Case, setting: Setting, engines: Engines, number: int) -> Run:
    scenario = SCENARIOS[case.scenario]
    with _telling(str(case)):
        course = scenario.course(setting, scenario.seconds_of(setting), case.load, case.seed)
        return run(case, course, replace(engines, count=scenario.workers or engines.count), number)


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Raises CannotStart for what keeps us from measuring: programs that do not serve, unreadable traces."""
    try:
        yield
    except (ServiceFailed, NotServed, OSError, ValueError, httpx.HTTPError) as error:
        raise CannotStart(f"{what}: {error}") from error

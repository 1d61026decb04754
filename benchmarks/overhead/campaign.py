"""In which order is everybody measured, with which programs, and what stands in the way?"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.command import CannotStart
from benchmarks.overhead import contenders
from benchmarks.overhead.checks import check_answers, check_counted
from benchmarks.overhead.contenders import (
    CONTENDERS,
    NGINX,
    PHASES,
    Contender,
    found,
    running_contender,
)
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.phases import RUN, Figures, Plan, Turn
from benchmarks.overhead.processors import staying_on, written
from benchmarks.overhead.results import Result
from benchmarks.overhead.stand import Workers, running_workers
from deploy.services import ServiceFailed

WARM_UP_S = 1
DEBIAN = {  # program: its package
    "wrk": "wrk",
    "nginx": "nginx",
    "redis-server": "redis-server",
    "setpriv": "util-linux",
    "taskset": "util-linux",
}


@dataclass(frozen=True, slots=True)
class Campaign:
    """Who is measured, in what, and where."""

    contenders: Sequence[str]
    phases: Sequence[str]
    rounds: int
    plan: Plan
    gateway_processors: frozenset[int]
    load_processors: frozenset[int]  # of workers, callers and Redis

    def parameters(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "contenders": list(self.contenders),
            "phases": list(self.phases),
            "rounds": self.rounds,
            **asdict(self.plan),
            "gateway_processors": sorted(self.gateway_processors),
            "load_processors": sorted(self.load_processors),
        }

    def phases_of(self, contender: Contender) -> list[str]:
        """In the order in which they are made."""
        return [name for name in PHASES if name in self.phases and name in contender.connections]

    def order(self) -> Iterator[tuple[int, Contender]]:
        """Odd rounds go forwards and even ones backwards, so that drift meets all alike."""
        taking_part = [CONTENDERS[name] for name in self.contenders if self.phases_of(CONTENDERS[name])]
        for number in range(1, self.rounds + 1):
            for contender in taking_part if number % 2 else reversed(taking_part):
                yield number, contender


def programs(campaign: Campaign) -> list[str]:
    """Of the system, that are needed."""
    taking_part = [CONTENDERS[name] for name in campaign.contenders]
    needed = ["wrk", "setpriv", "taskset"]
    needed += ["nginx"] if any(each.name == NGINX for each in taking_part) else []
    return needed + (["redis-server"] if any(each.has_redis for each in taking_part) else [])


def prepare(campaign: Campaign, say: Callable[[str], None]) -> None:
    """Have everything in place before anything is measured. Raises CannotStart."""
    if missing := [program for program in programs(campaign) if found(program) is None]:
        packages = dict.fromkeys(DEBIAN[program] for program in missing)
        raise CannotStart(f"not installed: {', '.join(missing)} (apt-get install {' '.join(packages)})")
    for name in campaign.contenders:
        if CONTENDERS[name].is_made:
            say(f"{name}: will be made if it is missing")
            try:
                contenders.installed(CONTENDERS[name])
            except (ServiceFailed, OSError) as error:
                raise CannotStart(f"{name}: {error}") from error


def measured(campaign: Campaign, say: Callable[[str], None]) -> Iterator[Result]:
    """All results, each as soon as it is there. Raises CannotStart where nobody can be measured.

    say: is told of each before it begins.
    """
    order = list(campaign.order())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="overhead-") as place,
            staying_on(campaign.load_processors),  # as do the programs that we start, unless told otherwise
            running_workers(Path(place)) as workers,
        ):
            for index, (number, contender) in enumerate(order, 1):
                say(f"{index}/{len(order)} round {number}, {contender.name}")
                yield result(campaign, number, contender, workers)
                workers.service.check()
    except (ServiceFailed, OSError, httpx.HTTPError) as error:
        raise CannotStart(str(error)) from error


def result(campaign: Campaign, number: int, contender: Contender, workers: Workers) -> Result:
    """One contender, freshly started, in one round."""
    phases: dict[str, Figures] = {}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="overhead-") as place,
            running_contender(
                contender, workers.urls, written(campaign.gateway_processors), Path(place)
            ) as target,
        ):
            turn = Turn(contender, target, workers, campaign.plan, Path(place), number, phases)
            _go_through(turn, campaign.phases_of(contender), phases)
    except (Invalid, ServiceFailed, OSError, LookupError, httpx.HTTPError) as error:
        return Result(number, contender.name, phases, problem=str(error) or repr(error))
    return Result(number, contender.name, phases)


def _go_through(turn: Turn, names: Sequence[str], phases: dict[str, Figures]) -> None:
    """Raises Invalid and what else programs that fail are told by."""
    before = turn.workers.settled().requests
    check_answers(turn.target)
    turn.load(min(turn.contender.connections.values()), seconds=WARM_UP_S)
    seen = turn.workers.settled().requests - before
    for name in names:
        try:
            phases[name] = RUN[name](turn)
            seen += int(phases[name]["requests_seen"])  # those that came through the gateway
            check_counted(turn.target, seen)
        except Invalid as error:
            raise Invalid(f"{name}: {error}") from error

"""What comes of one load through one arm? Fresh workers, a fresh router, and the callers."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.routing.arms import Arm, Target, running_arm
from benchmarks.routing.caller import Answer, play, saturate
from benchmarks.routing.figures import figures
from benchmarks.routing.kill import Kill
from benchmarks.routing.loads import FLOOD, ONE_TENANT, Call, mixed
from benchmarks.routing.results import MAX_LATE_S, SIZES, Run, others_figures, quantiles, waits_s
from benchmarks.routing.workers import Engines, Workers, running_workers
from deploy.services import ServiceFailed

AT_ONCE_PER_WORKER = 64  # when capacity is measured
CAPACITY_CALLS = 2_000  # that are drawn for it; then they come again


@dataclass(frozen=True, slots=True)
class Course:
    """What is played. All times are virtual seconds."""

    calls: Sequence[Call]
    lasts_s: float  # calls come for so long, the warm-up included
    warm_up_s: float
    patience_s: float  # callers hang up if they have no token by then
    kill: Kill | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Which run it is."""

    scenario: str
    load: str
    arm: Arm
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario}, {self.load}, {self.arm.name}, seed {self.seed}"


def run(case: Case, course: Course, engines: Engines, number: int) -> Run:
    """Raises ServiceFailed, OSError or httpx.HTTPError where a program does not do its part.

    number: of the run; no two have prompts in common, so that workers of others have not cached them either.
    """
    tenants = sorted({call.tenant for call in course.calls})
    with _started(case.arm, engines, tenants) as (workers, target):
        before = workers.generated_tokens()
        answers, up_s = uvloop.run(_play(course, target, workers, engines, number))
        target.service.check()
        workers.check()
        if all(answer.ttft_s is None for answer in answers):
            raise ServiceFailed(f"no call was answered. {target.service.tail()}")
        generated = None if course.kill else workers.generated_tokens() - before
        workers_late_s = workers.late_s()
    found = figures(answers, course.lasts_s, course.warm_up_s, generated)
    return Run(
        case.scenario,
        case.load,
        case.arm.name,
        case.seed,
        workers_late_s=workers_late_s,
        client_late_s=found.late_max_s,
        usable=max(workers_late_s, found.late_max_s) <= MAX_LATE_S,
        figures=asdict(found) | _more(course, answers, up_s),
        ttft_s={
            size: quantiles(waits_s(each for each in _counted(course, answers) if each.call.size == size))
            for size in SIZES
        },
    )


def _more(course: Course, answers: Sequence[Answer], up_s: float | None) -> dict[str, Any]:
    """The figures that only some scenarios have. up_s: when a worker that was killed was up again."""
    more: dict[str, Any] = {}
    if course.kill is not None and up_s is not None:
        more["kill"] = course.kill.figures(answers, course.warm_up_s, up_s)
    others = [each for each in _counted(course, answers) if each.call.tenant != FLOOD]
    if len({each.call.tenant for each in others}) > 1:
        more["others"] = others_figures(others)
    return more


def _counted(course: Course, answers: Sequence[Answer]) -> list[Answer]:
    return [each for each in answers if each.call.at_s >= course.warm_up_s]


def capacity(arm: Arm, engines: Engines, lasts_s: float, seed: int) -> float:
    """Requests of the mixed load a virtual second, with as many at once as keep all workers busy."""
    with _started(arm, engines, [ONE_TENANT]) as (workers, target):
        calls = cycle(mixed(1.0, CAPACITY_CALLS, seed))
        at_once = AT_ONCE_PER_WORKER * len(workers.urls)
        key = target.keys[ONE_TENANT]
        measured = uvloop.run(
            saturate(target.url, key, engines.model, calls, at_once, lasts_s / engines.speed)
        )
    return measured / engines.speed


@contextmanager
def _started(arm: Arm, engines: Engines, tenants: Sequence[str]) -> Iterator[tuple[Workers, Target]]:
    with (
        tempfile.TemporaryDirectory(prefix="routing-") as place,
        running_workers(engines, Path(place)) as workers,
        running_arm(arm, engines.model, workers.urls, tenants, Path(place)) as target,
    ):
        yield workers, target


async def _play(
    course: Course, target: Target, workers: Workers, engines: Engines, seed: int
) -> tuple[list[Answer], float | None]:
    """The answers, and when a killed worker was up again. The one place where time is stretched."""
    speed = engines.speed
    calls = [replace(call, at_s=call.at_s / speed) for call in course.calls]
    async with asyncio.TaskGroup() as group:
        killing = group.create_task(course.kill.conduct(workers, speed)) if course.kill else None
        answers = await play(target.url, target.keys, engines.model, calls, course.patience_s / speed, seed)
    return [_virtual(answer, speed) for answer in answers], killing.result() if killing else None


def _virtual(answer: Answer, speed: float) -> Answer:
    return replace(
        answer,
        call=replace(answer.call, at_s=answer.call.at_s * speed),
        sent_s=answer.sent_s * speed,
        ttft_s=None if answer.ttft_s is None else answer.ttft_s * speed,
        ended_s=answer.ended_s * speed,
    )

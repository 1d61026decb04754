"""What would this fleet run, and does it fit? Reads files, starts nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workers import cpu
from workers.command import Command, command_for
from workers.fleet import Entry, load
from workers.memory import MemoryPlan, memory_plan
from workers.models import Shape, UnknownShape, shape_of
from workers.problems import Problem, Refused
from workers.rules import broken_by_model, broken_settings, clashes
from workers.spec import CpuWorker, Worker


class CpuEnvironment(Protocol):
    """Where vLLM for CPUs and its model are installed."""

    @property
    def python(self) -> Path: ...
    @property
    def model(self) -> Path: ...


LocateCpu = Callable[[], CpuEnvironment]


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """All that is known of a worker before it runs."""

    worker: Worker
    shape: Shape
    memory: MemoryPlan
    command: Command


def plan_fleet(file: Path, locate_cpu: LocateCpu = cpu.locate) -> list[WorkerPlan]:
    """Plans every worker of a fleet file, in its order.

    `locate_cpu` gives the interpreter and model of CPU workers that name none; it may raise cpu.NotInstalled.
    Raises Refused with every problem of every worker.
    """
    entries = load(file)
    problems: list[Problem] = []
    plans: list[WorkerPlan] = []
    for entry in entries:
        worker, shape, found = _check(entry, locate_cpu)
        problems += found
        if shape is not None and not found:
            plans.append(WorkerPlan(worker, shape, memory_plan(worker, shape), command_for(worker, shape)))
    taken = clashes([(entry.worker, entry.faulty) for entry in entries])
    problems += [entries[index].problem(field, remedy) for index, field, remedy in taken]
    if problems:
        raise Refused(problems)
    return plans


def _check(entry: Entry, locate_cpu: LocateCpu) -> tuple[Worker, Shape | None, list[Problem]]:
    """The worker with its paths filled in, its model's shape if it has one, and all that is wrong with it."""
    worker, faulty = entry.worker, entry.faulty
    problems = [*entry.problems, *(entry.problem(*broken) for broken in broken_settings(worker, faulty))]
    if isinstance(worker, CpuWorker):
        try:
            worker = _with_installed(worker, locate_cpu)
        except cpu.NotInstalled as error:
            return worker, None, [*problems, entry.problem("python", f"left out, and {error}")]
    if faulty & {"model", "shape"} or worker.model is None:
        return worker, None, problems
    try:
        shape = worker.shape or shape_of(worker.model)
    except UnknownShape as error:
        return worker, None, [*problems, entry.problem("model", str(error))]
    problems += [entry.problem(*broken) for broken in broken_by_model(worker, shape, faulty)]
    return worker, shape, problems


def _with_installed(worker: CpuWorker, locate_cpu: LocateCpu) -> CpuWorker:
    if worker.python and worker.model:
        return worker
    installed = locate_cpu()
    return worker.model_copy(
        update={
            "python": worker.python or str(installed.python),
            "model": worker.model or str(installed.model),
        }
    )

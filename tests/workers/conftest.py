"""What the tests of `workers` share: fleet files, a fake vLLM, and a look at which processes live."""

import asyncio
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from workers import cpu
from workers.plan import CpuEnvironment, WorkerPlan, plan_fleet
from workers.problems import Refused
from workers.process import Launch
from workers.supervisor import State

DEADLINE_S = 60
FAKE_VLLM = Path(__file__).with_name("fake_vllm.py")

ONE_WORKER = """
[[workers]]
id = "w0"
model = "Qwen/Qwen2.5-7B-Instruct"
port = 8101
gpus = [0]
"""


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `workers up` runs on."""
    return {"asyncio": asyncio.new_event_loop}


def not_installed() -> CpuEnvironment:
    """A machine on which the CPU environment is missing."""
    raise cpu.NotInstalled("run `python -m workers.cpu`")


class Fleets:
    """Plans fleet files that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, text: str) -> Path:
        """Writes the text as a fleet file."""
        path = self.folder / "fleet.toml"
        path.write_text(text)
        return path

    def plans(self, text: str, locate_cpu: Callable[[], CpuEnvironment] = not_installed) -> list[WorkerPlan]:
        """Plans the fleet that the text describes."""
        return plan_fleet(self.file(text), locate_cpu)

    def plan(self, extra: str = "") -> WorkerPlan:
        """Plans one worker of Qwen2.5-7B on one GPU, with more lines in its table."""
        return self.plans(ONE_WORKER + extra)[0]

    def problems(self, text: str) -> list[str]:
        """Everything the fleet is refused for."""
        with pytest.raises(Refused) as refused:
            self.plans(text)
        return [str(problem) for problem in refused.value.problems]

    def problem(self, extra: str) -> str:
        """The one thing that a worker of Qwen2.5-7B with these lines is refused for."""
        (only,) = self.problems(ONE_WORKER + extra)
        return only


@pytest.fixture
def fleets(tmp_path: Path) -> Fleets:
    """Plans fleet files in a folder of their own."""
    return Fleets(tmp_path)


@dataclass
class FakeVllm:
    """The fake executable, and the processes that its lives have made."""

    executable: Path
    folder: Path

    def launch(self, worker_id: str, behaviour: str, start_limit_s: float = DEADLINE_S) -> Launch:
        """What the supervisor needs to start a fake worker."""
        port = free_port()
        return Launch(
            id=worker_id,
            argv=(str(self.executable), "--port", str(port)),
            env={**os.environ, **self.environment(worker_id, behaviour)},
            log=self.folder / f"{worker_id}.log",
            url=f"http://127.0.0.1:{port}",
            health_url=f"http://127.0.0.1:{port}/health",
            start_limit_s=start_limit_s,
            shutdown_timeout_s=DEADLINE_S,
        )

    def environment(self, worker_id: str, behaviour: str) -> dict[str, str]:
        """The variables that steer the fake."""
        return {"FAKE_BEHAVIOUR": behaviour, "FAKE_PIDS": str(self._pids(worker_id))}

    def lives(self, worker_id: str) -> list[tuple[int, int]]:
        """Process and child of each life so far."""
        lines = self._pids(worker_id).read_text().splitlines()
        return [(int(own), int(child)) for own, child in (line.split() for line in lines)]

    def _pids(self, worker_id: str) -> Path:
        return self.folder / f"{worker_id}.pids"


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Iterator[FakeVllm]:
    """A fake vLLM; no process of any of its lives may outlive the test."""
    executable = tmp_path / "vllm"
    executable.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{FAKE_VLLM}" "$@"\n')
    executable.chmod(0o755)
    fake = FakeVllm(executable, tmp_path)
    yield fake
    for pids in tmp_path.glob("*.pids"):
        for pair in fake.lives(pids.stem):
            assert [pid for pid in pair if not has_ended(pid, 0)] == []


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def has_ended(pid: int, within_s: float = DEADLINE_S) -> bool:
    """Whether the process ends in that time. One that only waits to be reaped has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)


class Recorder:
    """A display that a test can wait on."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, State, str]] = []
        self.said: list[str] = []
        self._news = asyncio.Condition()
        self._pending: set[asyncio.Task[None]] = set()

    def change(self, worker_id: str, state: State, detail: str = "") -> None:
        """Notes the change and wakes whoever waits for it."""
        self.changes.append((worker_id, state, detail))
        self._wake()

    def progress(self, worker_id: str, line: str) -> None:
        """Notes the line and wakes whoever waits for it."""
        self.said.append(line)
        self._wake()

    def states(self, worker_id: str) -> list[State]:
        """The states of one worker so far, in order."""
        return [state for worker, state, _ in self.changes if worker == worker_id]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until what has been noted meets the condition."""
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(condition)

    def _wake(self) -> None:
        task = asyncio.ensure_future(self._notify())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


@pytest.fixture
def recorder() -> Recorder:
    """A display that a test can wait on."""
    return Recorder()


def installed(python: Path, model: Path) -> Callable[[], CpuEnvironment]:
    """A machine on which the CPU environment is at these places."""
    return lambda: SimpleNamespace(python=python, model=model)

"""Several processes behind one port: started, told of, and ended with the benchmark."""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.balance.stand import Way
from deploy.services import Service, ServiceFailed, running

START_LIMIT_S = 30.0
STOP_S = 10.0
POLL_S = 0.01
# They end with us, also if we are killed.
COMMAND = ("setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "benchmarks.balance.stand")


@dataclass(frozen=True, slots=True)
class Processes:
    """count: so many behind the port."""

    parent: Service
    count: int

    @property
    def port(self) -> int:
        found = re.search(r"listening on (\d+)", self._said())
        return int(found[1]) if found else 0

    def cpu_s(self) -> float:
        """Processor time that those that run have taken so far."""
        return sum(_cpu_s(pid) for pid in self.pids())

    def pids(self) -> list[int]:
        pid = self.parent.process.pid
        return [
            int(of) for of in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        ]

    def begun(self) -> int:
        """How many have ever begun to serve."""
        return self._said().count(" serves\n")

    @contextmanager
    def replaced(self, count: int) -> Iterator[Callable[[], Awaitable[None]]]:
        """Gives what waits until so many have begun since."""
        wanted = self.begun() + count

        async def wait() -> None:
            deadline_s = time.monotonic() + START_LIMIT_S
            while self.begun() < wanted:
                self.parent.check()
                if time.monotonic() > deadline_s:
                    raise ServiceFailed(f"a process did not begin. {self.parent.tail()}")
                await asyncio.sleep(POLL_S)

        yield wait

    def _said(self) -> str:
        return self.parent.log.read_text(encoding="utf-8", errors="replace")


def _cpu_s(pid: int) -> float:
    """The kernel counts it in nanoseconds here."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9


@contextmanager
def running_processes(way: Way, count: int) -> Iterator[Processes]:
    """They serve; they end with the block. Raises ServiceFailed, or OSError without setpriv."""
    with tempfile.TemporaryDirectory(prefix="balance-") as folder:
        log = Path(folder) / "processes.log"
        with running("processes", [*COMMAND, way, str(count)], log, STOP_S) as parent:
            processes = Processes(parent, count)
            deadline_s = time.monotonic() + START_LIMIT_S
            while processes.begun() < count:
                parent.check()
                if time.monotonic() > deadline_s:
                    raise ServiceFailed(f"the processes did not begin. {parent.tail()}")
                time.sleep(POLL_S)
            yield processes

"""How much processor time has a program had, with all that it started? And where may who run?"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of one processor."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.user_s - other.user_s, self.system_s - other.system_s)


def tree_time(pid: int, proc: Path = PROC) -> CpuTime:
    """Of a process and all below it so far, those that have ended and were waited for included.

    The kernel tells it in hundredths of a second.
    """
    return sum((_time(proc / str(each)) for each in tree(pid, proc)), CpuTime())


def tree(pid: int, proc: Path = PROC) -> list[int]:
    """A process and all below it, parents first."""
    found = [pid]
    for each in found:  # which grows meanwhile
        found += _children(proc / str(each))
    return found


def _children(process: Path) -> list[int]:
    """Each thread has its own."""
    found: list[int] = []
    for thread in process.glob("task/*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def _time(process: Path) -> CpuTime:
    try:
        text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has ended; whoever waited for it has its time
        return CpuTime()
    user, system, ended_user, ended_system = map(int, text.rpartition(")")[2].split()[11:15])
    return CpuTime((user + ended_user) / TICKS_PER_S, (system + ended_system) / TICKS_PER_S)


def parsed(text: str) -> frozenset[int]:
    """Processors as taskset and the kernel write them, like 0,2-3. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def written(processors: frozenset[int]) -> str:
    """For taskset."""
    return ",".join(map(str, sorted(processors)))


@contextmanager
def staying_on(processors: frozenset[int]) -> Iterator[None]:
    """This thread, and what it starts, run there for as long as the block lasts. Raises OSError."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

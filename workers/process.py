"""How is one worker process, with all its children, started, watched and ended?"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from workers.guard import Guard

# How often a killed group is looked at until its last process has been reaped, and how often at most.
GROUP_POLL_S = 0.02
GROUP_POLLS = 250

PR_SET_CHILD_SUBREAPER = 36

LOG_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to start a worker here and now. `env` is complete and may hold secrets."""

    id: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    log: Path
    url: str
    health_url: str
    start_limit_s: float
    shutdown_timeout_s: float


class WorkerProcess:
    """A worker's API process, leading a process group of its own so that no child is ever lost."""

    def __init__(self, process: asyncio.subprocess.Process, guard: Guard) -> None:
        self._process = process
        self._guard = guard
        # The leader of a new session leads a group of the same number.
        self.group = process.pid

    @classmethod
    async def start(cls, launch: Launch, guard: Guard) -> "WorkerProcess":
        """Starts it, standard output and error appended to its log. Raises OSError if it cannot be run."""
        with launch.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                env=launch.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                # Also keeps a terminal's Ctrl-C from reaching it: the supervisor decides who stops when.
                start_new_session=True,
            )
        worker = cls(process, guard)
        try:
            guard.watch(worker.group)
        except OSError:
            await worker.clear()
            raise
        return worker

    async def wait(self) -> int:
        """Waits for the API process to end; its exit status, negative for a signal."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Asks the API process to finish what runs and end (SIGTERM); it ends its own children."""
        if self._process.returncode is None:
            self._process.terminate()

    async def clear(self) -> None:
        """Kills whatever is left of the group at once, and waits until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        await self._process.wait()
        # The end of a process that is not our own child is told to nobody: their absence is all there is to
        # look for. Bounded, because one that hangs in a driver cannot be killed until the driver lets go.
        for _ in range(GROUP_POLLS):
            self._reap_orphans()
            if not self._group_exists():
                break
            await asyncio.sleep(GROUP_POLL_S)
        self._guard.forget(self.group)

    def _reap_orphans(self) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-self.group, os.WNOHANG)[0]:
                pass

    def _group_exists(self) -> bool:
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Makes this process the parent of its orphaned descendants, so that it can reap them itself.

    Some inits reap late or never, and a dead worker's children would seem to live on. Linux only.
    """
    _set_child_subreaper(True)
    try:
        yield
    finally:
        _set_child_subreaper(False)


def _set_child_subreaper(on: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def log_tail(log: Path, lines: int) -> list[str]:
    """The last lines of a log that are not blank; fewer if it is shorter, none if there is no log yet."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()][-lines:]

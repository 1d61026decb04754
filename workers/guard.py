"""Who takes the workers down when the supervisor itself is killed?

A small process in a session of its own, held by a pipe: the supervisor tells it which process groups live.
When the pipe ends, the groups not taken back are killed; there are such only if the supervisor was killed.
A parent death signal would reach the API process of a worker, not the engine and GPU processes below it.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

READY = b"."


class Guard:
    """The supervisor's end: `watch` and `forget` process groups while the context is open."""

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.guard"],
            stdin=pipe,
            stdout=pipe,
            bufsize=0,
            start_new_session=True,
        )
        # Until it says so, a signal to everybody could still end it.
        assert self._process.stdout is not None
        self._process.stdout.read(len(READY))
        return self

    def watch(self, group: int) -> None:
        """From now on the group does not outlive the supervisor. Raises OSError if the guard is gone."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group is gone; its number may be given to others."""
        # A guard that is gone has nothing left to forget.
        with suppress(BrokenPipeError):
            self._tell(f"-{group}\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())


def stand_guard(lines: int, ready: int) -> None:
    """The guard's end: says READY, reads `+group` and `-group` lines, kills what is left at their end."""
    # Only the end of the pipe ends the guard: whoever signals everything means the supervisor.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    os.write(ready, READY)
    with os.fdopen(lines, encoding="ascii") as told:
        for line in told:
            change = groups.add if line.startswith("+") else groups.discard
            change(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    stand_guard(sys.stdin.fileno(), sys.stdout.fileno())

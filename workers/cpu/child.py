"""How is a long command run so that it is heard while it works and never outlives us?"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TAIL_LINES = 25  # enough to hold pip's error and its hint
STOP_S = 5.0  # pip and the converter leave nothing worth waiting longer for


class CommandFailed(Exception):
    """A command ended with a status other than 0; `tail` holds the last lines it printed."""

    def __init__(self, argv: Sequence[str | Path], status: int, tail: Sequence[str]) -> None:
        self.argv = [str(part) for part in argv]
        self.status = status
        self.tail = list(tail)
        super().__init__("\n".join([f"`{' '.join(self.argv)}` ended with status {status}:", *self.tail]))


def run(
    argv: Sequence[str | Path], on_line: Callable[[str], None], env: Mapping[str, str] | None = None
) -> None:
    """Run a command, handing over each line of its output, and wait for its end.

    `env` is added to our own environment. Raises CommandFailed on a status other than 0. If we are
    interrupted, the command's whole process group is stopped before the interruption goes on.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **(env or {})},
        start_new_session=True,  # Ctrl-C reaches us alone, so that one place decides what stops when
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip())
                on_line(line.rstrip())
            status = process.wait()
        except BaseException:
            _stop_group(process)
            raise
    if status != 0:
        raise CommandFailed(argv, status, tail)


def _stop_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM, then SIGKILL, to a process that leads a group of its own."""
    if process.poll() is not None:
        return  # reaped: its number may belong to someone else by now
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""One of several processes that serve: what is its place, and how is it begun and told what to do?"""

import fcntl
import logging
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gateway.accepting import Loads

log = logging.getLogger(__name__)

ROLL = signal.SIGUSR2  # tells the parent to replace its processes one by one
RETIRE = signal.SIGUSR1  # tells one of them that its successor serves
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one process among its siblings. No two that live have the same number."""

    number: int  # from 0
    count: int  # of processes
    seats: int  # of numbers: more than processes, as one and its successor are there at once
    folder: Path  # what they share besides the sockets; gone when the parent ends
    lifeline: int  # a file descriptor which comes to its end when the parent does, however it ends
    loads: Loads  # by which they share the connections that come


@dataclass(frozen=True, slots=True)
class Shift:
    """What a process does.

    work: serves until it is told to stop (`signals.until_told_to_stop`). drain_s: how long that may take.
    """

    work: Callable[[Seat], None]
    drain_s: float


@dataclass(slots=True, eq=False)
class Child:
    """A process as its parent knows it."""

    number: int  # of its seat
    shift: Shift
    pid: int = 0  # 0: it does not run
    began: float = 0.0
    pause_s: float = 0.0  # before the last start
    due: float = 0.0  # when it may start again
    kill_at: float = NEVER  # by when it must have done what it has to

    def start(self, seat: Seat, other_end: int) -> None:
        """other_end: of the lifeline, which it must not hold itself. Raises OSError."""
        self.pid = os.fork()
        if self.pid == 0:
            self._serve(seat, other_end)

    def _serve(self, seat: Seat, other_end: int) -> NoReturn:
        """What the process does. It must not leave by the way that its parent came."""
        status = 1
        try:
            os.close(other_end)
            with _left_tidy(seat.folder, seat.lifeline):
                self.shift.work(seat)
            status = 0
        except Exception:
            log.exception("process %d failed", seat.number)
        finally:
            os._exit(status)

    def tell(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int | None:
        """Its exit status, or minus the signal that it was killed by; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@contextmanager
def _left_tidy(folder: Path, lifeline: int) -> Iterator[None]:
    """Where a parent was killed, the last of its children puts away what it would have."""
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    try:
        yield
    finally:
        parent_is_gone, _, _ = select.select([lifeline], [], [], 0)
        if parent_is_gone:
            with suppress(BlockingIOError):  # others hold it still
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)

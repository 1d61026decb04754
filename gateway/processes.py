"""How do several processes serve one port? A parent forks them, and does nothing but keep their number.

They share the sockets that the parent listens on, so that connections which wait to be accepted outlive a
process that dies. The parent has neither an event loop nor threads: it can fork at any time.
"""

import fcntl
import gc
import logging
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gateway.accepting import AWAY, Loads

log = logging.getLogger(__name__)

STOPS = {signal.SIGTERM, signal.SIGINT}
SIGNALS = {*STOPS, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD}
IN_MEMORY = Path("/dev/shm")  # a disk may hold up whoever writes to it
LONG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the parent acts, seconds."""

    settled_s: float = 10.0  # who dies later than that after its start is replaced at once
    pause_first_s: float = 0.1
    pause_most_s: float = 10.0
    grace_s: float = 15.0  # for a process to end after its drain; then it hangs, and is killed


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one process among its siblings. It is kept when the process is replaced."""

    number: int  # from 0
    count: int  # of all
    folder: Path  # what they share besides the sockets; gone when the parent ends
    lifeline: int  # a file descriptor which comes to its end when the parent does, however it ends
    loads: Loads  # by which they share the connections that come


@dataclass(slots=True)
class _Child:
    number: int
    pid: int = 0  # 0: it does not run
    began: float = 0.0
    pause_s: float = 0.0  # before the last start
    due: float = 0.0  # when it may start again


class Parent:
    """work: serves until it is told to stop (`server.until_told_to_stop`). drain_s: how long that may take.

    It begins with the signals blocked that are meant for it: what comes before it listens is not lost.
    """

    def __init__(
        self, count: int, work: Callable[[Seat], None], drain_s: float, pace: Pace | None = None
    ) -> None:
        self._work = work
        self._drain_s = drain_s
        self._pace = pace or Pace()
        self._children = [_Child(number) for number in range(count)]
        self._loads = Loads(count)
        self._kill_at: float | None = None  # set once they have been told to stop
        self._status = 0

    def run(self) -> int:
        """Returns once it was told to stop and all have ended: 0, or 1 if one of them ended badly.

        SIGTERM and SIGINT begin a drain, a second one ends it, as does SIGQUIT; SIGHUP is passed on. Leaves
        its signals blocked: the end of the process is all that may follow.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        gc.freeze()  # what a collection touches is no longer shared with the children
        place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="gateway-", dir=place) as folder:
            self._folder = Path(folder)
            self._lifeline, self._other_end = os.pipe()
            while self._kill_at is None or self._running():
                self._start_those_due()
                if told := signal.sigtimedwait(SIGNALS, self._wait_s()):
                    self._obey(signal.Signals(told.si_signo))
                self._bury_the_dead()
                self._kill_those_late()
            os.close(self._lifeline)
            os.close(self._other_end)
        return self._status

    def _running(self) -> list[_Child]:
        return [child for child in self._children if child.pid]

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if self._kill_at is None and not child.pid and child.due <= now:
                self._start(child)

    def _start(self, child: _Child) -> None:
        child.began = time.monotonic()
        try:
            child.pid = os.fork()
        except OSError as error:
            self._put_off(child, f"cannot be started: {error.strerror}")
            return
        if child.pid == 0:
            self._serve(child.number)

    def _serve(self, number: int) -> NoReturn:
        """What the child does. It must not leave by the way that the parent came."""
        status = 1
        try:
            os.close(self._other_end)
            with _left_tidy(self._folder, self._lifeline):
                self._work(Seat(number, len(self._children), self._folder, self._lifeline, self._loads))
            status = 0
        except Exception:
            log.exception("process %d failed", number)
        finally:
            os._exit(status)

    def _wait_s(self) -> float:
        """Until there is something to do besides obeying."""
        if self._kill_at is not None:
            until = self._kill_at
        else:
            until = min((child.due for child in self._children if not child.pid), default=float("inf"))
        return min(max(until - time.monotonic(), 0.0), LONG_S)

    def _obey(self, number: signal.Signals) -> None:
        hurry = number == signal.SIGQUIT or self._kill_at is not None
        if number == signal.SIGHUP:
            self._tell(number)
        elif number in STOPS or number == signal.SIGQUIT:
            self._tell(signal.SIGQUIT if hurry else signal.SIGTERM)
            self._kill_at = time.monotonic() + self._pace.grace_s + (0 if hurry else self._drain_s)

    def _tell(self, number: signal.Signals) -> None:
        for child in self._running():
            os.kill(child.pid, number)

    def _bury_the_dead(self) -> None:
        for child in self._running():
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.pid = 0
                self._loads.tell(child.number, AWAY)
                self._ended(child, pid, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, pid: int, code: int) -> None:
        how = f"was killed: {signal.strsignal(-code)} ({-code})" if code < 0 else f"ended with status {code}"
        if self._kill_at is None:
            self._put_off(child, f"(pid {pid}) {how}")
        elif code:
            self._status = 1
            log.error("process %d (pid %d) %s", child.number, pid, how)

    def _put_off(self, child: _Child, what: str) -> None:
        """Have it started again; later each time if it dies as soon as it has started."""
        pace, now = self._pace, time.monotonic()
        settled = now - child.began >= pace.settled_s
        child.pause_s = 0.0 if settled else min(child.pause_s * 2 or pace.pause_first_s, pace.pause_most_s)
        child.due = now + child.pause_s
        log.error("process %d %s; it starts again in %g s", child.number, what, child.pause_s)

    def _kill_those_late(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for child in self._running():
                log.error("process %d (pid %d) does not end, and is killed", child.number, child.pid)
            self._tell(signal.SIGKILL)
            self._kill_at = float("inf")


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

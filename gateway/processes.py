"""How do several processes serve one port? A parent forks them, and does nothing but keep their number.

They share the sockets that the parent listens on, so that connections which wait to be accepted outlive a
process that dies. The parent has neither an event loop nor threads: it can fork at any time.

In a rolling restart each makes way for a successor, one after the other. The successor serves before its
predecessor is told, and that one then serves whoever is still connected to it. Meanwhile both have a seat.
"""

import gc
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.accepting import AWAY, Loads
from gateway.forks import NEVER, RETIRE, ROLL, Child, Seat, Shift

log = logging.getLogger(__name__)

STOPS = {signal.SIGTERM, signal.SIGINT}
SIGNALS = {*STOPS, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, ROLL, RETIRE}
IN_MEMORY = Path("/dev/shm")  # a disk may hold up whoever writes to it
LONG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the parent acts, seconds."""

    settled_s: float = 10.0  # who dies later than that after its start is replaced at once
    pause_first_s: float = 0.1
    pause_most_s: float = 10.0
    grace_s: float = 15.0  # for a process to end after its drain; then it hangs, and is killed
    begin_s: float = 60.0  # for a successor to come to serve; likewise
    look_s: float = 0.02  # between two looks at whether it does


class Parent:
    """shift: what the processes do. renew: is asked at each rolling restart what their successors do; None:
    nothing is to be replaced.

    It begins with the signals blocked that are meant for it: what comes before it listens is not lost.
    """

    def __init__(
        self,
        count: int,
        shift: Shift,
        pace: Pace | None = None,
        renew: Callable[[], Shift | None] | None = None,
    ) -> None:
        self._shift = shift
        self._renew = renew or (lambda: shift)
        self._pace = pace or Pace()
        self._children = [Child(number, shift) for number in range(count)]
        self._to_replace: list[Child] = []  # of them
        self._successor: Child | None = None  # of the first of those; it does not serve yet
        self._leaving: list[Child] = []  # that were replaced
        self._seats = 2 * count
        self._loads = Loads(self._seats)
        self._is_stopping = False  # all of them
        self._shall_roll = False
        self._status = 0

    def run(self) -> int:
        """Returns once it was told to stop and all have ended: 0, or 1 if one of them ended badly.

        SIGTERM and SIGINT begin a drain, a second one ends it, as does SIGQUIT; SIGHUP is passed on; SIGUSR2
        begins a rolling restart. Leaves its signals blocked: the end of the process is all that may follow.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        gc.freeze()  # what a collection touches is no longer shared with the children
        place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="gateway-", dir=place) as folder:
            self._folder = Path(folder)
            self._lifeline, self._other_end = os.pipe()
            while not self._is_stopping or self._running():
                self._start_those_due()
                self._roll()
                if told := signal.sigtimedwait(SIGNALS, self._wait_s()):
                    self._obey(signal.Signals(told.si_signo))
                self._bury_the_dead()
                self._kill_those_late()
            os.close(self._lifeline)
            os.close(self._other_end)
        return self._status

    def _all(self) -> list[Child]:
        return [*self._children, *self._leaving, *([self._successor] if self._successor else [])]

    def _running(self) -> list[Child]:
        return [child for child in self._all() if child.pid]

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if not self._is_stopping and not child.pid and child.due <= now:
                self._start(child)

    def _start(self, child: Child) -> None:
        count = len(self._children)
        seat = Seat(child.number, count, self._seats, self._folder, self._lifeline, self._loads)
        child.began = time.monotonic()
        try:
            child.start(seat, self._other_end)
        except OSError as error:
            self._failed(child, f"cannot be started: {error.strerror}")

    def _wait_s(self) -> float:
        """Until there is something to do besides obeying."""
        now = time.monotonic()
        moments = [child.kill_at for child in self._running()]
        if not self._is_stopping:
            moments += [child.due for child in self._children if not child.pid]
            if self._successor is not None:
                moments.append(now + self._pace.look_s)
        return min(max(min(moments, default=NEVER) - now, 0.0), LONG_S)

    def _obey(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            self._tell(number)
        elif number == ROLL:
            self._shall_roll = True
        elif number in STOPS or number == signal.SIGQUIT:
            hurry = number == signal.SIGQUIT or self._is_stopping
            self._is_stopping = True
            self._tell(signal.SIGQUIT if hurry else number)
            for child in self._running():
                self._give_time(child, 0.0 if hurry else child.shift.drain_s)

    def _tell(self, number: signal.Signals) -> None:
        for child in self._running():
            child.tell(number)

    def _give_time(self, child: Child, drain_s: float) -> None:
        child.kill_at = time.monotonic() + drain_s + self._pace.grace_s

    def _bury_the_dead(self) -> None:
        for child in self._running():
            pid = child.pid
            code = child.ended()
            if code is not None:
                self._loads.tell(child.number, AWAY)
                self._ended(child, pid, code)

    def _ended(self, child: Child, pid: int, code: int) -> None:
        how = f"was killed: {signal.strsignal(-code)} ({-code})" if code < 0 else f"ended with status {code}"
        was_replaced = child in self._leaving
        if was_replaced:
            self._leaving.remove(child)
        if not was_replaced and not self._is_stopping:
            self._failed(child, f"(pid {pid}) {how}")
        elif code:
            self._status = 1 if self._is_stopping else self._status
            log.error("process %d (pid %d) %s", child.number, pid, how)

    def _failed(self, child: Child, what: str) -> None:
        if child is self._successor:
            self._give_up(child, what)
        else:
            self._put_off(child, what)

    def _put_off(self, child: Child, what: str) -> None:
        """Have it started again; later each time if it dies as soon as it has started."""
        pace, now = self._pace, time.monotonic()
        settled = now - child.began >= pace.settled_s
        child.pause_s = 0.0 if settled else min(child.pause_s * 2 or pace.pause_first_s, pace.pause_most_s)
        child.due = now + child.pause_s
        log.error("process %d %s; it starts again in %g s", child.number, what, child.pause_s)

    def _kill_those_late(self) -> None:
        now = time.monotonic()
        for child in self._running():
            if child.kill_at <= now:
                what = "come to serve" if child is self._successor and not self._is_stopping else "end"
                log.error("process %d (pid %d) does not %s, and is killed", child.number, child.pid, what)
                child.tell(signal.SIGKILL)
                child.kill_at = NEVER

    # A rolling restart

    def _roll(self) -> None:
        """Take the next step, as far as it can be taken."""
        if self._is_stopping:
            return
        if self._successor is not None and self._loads.accepts(self._successor.number):
            self._hand_over(self._successor)
        if self._shall_roll and not self._to_replace:
            self._shall_roll = False
            self._begin_to_roll()
        if self._to_replace and self._successor is None:
            self._start_successor()

    def _begin_to_roll(self) -> None:
        try:
            shift = self._renew()
        except Exception:
            log.exception("no process is replaced, by a bug of the gateway")
            return
        if shift is not None:
            self._shift = shift
            self._to_replace = list(self._children)
            log.info("a rolling restart begins: %d processes make way, one by one", len(self._to_replace))

    def _start_successor(self) -> None:
        """If there is a seat for it: else as soon as one that was replaced before has ended."""
        free = set(range(self._seats)) - {child.number for child in self._all()}
        if free:
            begin_by = time.monotonic() + self._pace.begin_s
            self._successor = Child(min(free), self._shift, kill_at=begin_by)
            self._start(self._successor)

    def _hand_over(self, successor: Child) -> None:
        old = self._to_replace.pop(0)
        self._children[self._children.index(old)] = successor
        self._successor, successor.kill_at = None, NEVER
        log.info("process %d (pid %d) serves, and %d makes way", successor.number, successor.pid, old.number)
        if old.pid:
            old.tell(RETIRE)
            self._give_time(old, old.shift.drain_s)
            self._leaving.append(old)
        if not self._to_replace:
            log.info("the rolling restart is complete: all %d processes were replaced", len(self._children))

    def _give_up(self, successor: Child, what: str) -> None:
        left, self._to_replace, self._successor = len(self._to_replace), [], None
        log.error(
            "process %d %s before it served; the rolling restart ends, and %d of %d processes stay",
            successor.number, what, left, len(self._children),
        )  # fmt: skip

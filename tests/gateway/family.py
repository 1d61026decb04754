"""A parent whose processes say what they meet, for its tests: `python -m tests.gateway.family WORK COUNT`."""

import errno
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from gateway.accepting import AWAY
from gateway.processes import Pace, Parent, Seat

TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
QUICK = Pace(settled_s=3600, pause_first_s=0.01, pause_most_s=0.04, grace_s=0.2)
PATIENT = Pace(settled_s=0, grace_s=3600)


def say(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def listen(seat: Seat) -> signal.Signals:
    """Wait for what ends a process, and say what it was; SIGHUP does not."""
    while True:
        number = signal.Signals(signal.sigwait(TOLD))
        say(seat.number, number.name)
        if number != signal.SIGHUP:
            return number


def obey(seat: Seat) -> None:
    say(seat.number, "up", os.getpid(), seat.count, seat.folder)
    listen(seat)


def obey_once_told(seat: Seat) -> None:
    """The first one tells the parent to stop before any of them listens."""
    if seat.number == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    while signal.SIGTERM not in signal.sigpending():
        time.sleep(0.001)
    obey(seat)


def watch(seat: Seat) -> None:
    """The first one accepts, but not its successor. The other one says at each SIGHUP who does."""
    mark = seat.folder / "begun"
    if seat.number == 0 and not mark.exists():
        mark.touch()
        seat.loads.tell(0, 0.0)
    say(seat.number, "up", os.getpid())
    while signal.sigwait(TOLD) == signal.SIGHUP:
        if seat.number == 1:
            say(seat.number, "sees", *seat.loads.lighter(AWAY))


def drain(seat: Seat) -> None:
    """One signal is not enough."""
    say(seat.number, "up", os.getpid())
    listen(seat)
    listen(seat)


def hang(seat: Seat) -> None:
    say(seat.number, "up", os.getpid())
    while True:
        listen(seat)


def fail(seat: Seat) -> None:
    say(seat.number, "up", os.getpid())
    raise ZeroDivisionError("the bug of this test")


def fail_when_told(seat: Seat) -> None:
    obey(seat)
    raise ZeroDivisionError("the bug of this test")


def outlive(seat: Seat) -> None:
    say(seat.number, "up", os.getpid(), seat.folder)
    assert os.read(seat.lifeline, 1) == b""
    say(seat.number, "orphaned")


def refuse_first_fork(fork: Callable[[], int]) -> Callable[[], int]:
    refusals = iter([OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))])

    def forks() -> int:
        for refusal in refusals:
            raise refusal
        return fork()

    return forks


WORKS = {
    work.__name__: work for work in (obey, obey_once_told, watch, drain, hang, fail, fail_when_told, outlive)
}

if __name__ == "__main__":
    work, count, *more = sys.argv[1:]
    logging.basicConfig(format="%(message)s")
    if "no fork" in more:
        os.fork = refuse_first_fork(os.fork)
    pace = QUICK if "quick" in more else PATIENT
    sys.exit(Parent(int(count), WORKS[work], drain_s=0.0 if "quick" in more else 3600.0, pace=pace).run())

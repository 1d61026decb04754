"""A parent whose processes say what they meet, for its tests: `python -m tests.gateway.family WORK COUNT`."""

import errno
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from gateway.accepting import AWAY
from gateway.forks import RETIRE, Seat, Shift
from gateway.processes import Pace, Parent

TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, RETIRE}
QUICK = Pace(settled_s=3600, pause_first_s=0.01, pause_most_s=0.04, grace_s=0.2, begin_s=0.5, look_s=0.001)
PATIENT = Pace(settled_s=0, grace_s=3600, begin_s=3600, look_s=0.001)


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


def accept(seat: Seat) -> None:
    """As `obey`, and it comes to serve."""
    say(seat.number, "up", os.getpid(), seat.count, seat.seats)
    seat.loads.tell(seat.number, 0.0)
    listen(seat)


def linger(seat: Seat) -> None:
    """As `accept`, but one that is replaced ends at a second signal only."""
    say(seat.number, "up", os.getpid())
    seat.loads.tell(seat.number, 0.0)
    if listen(seat) == RETIRE:
        listen(seat)


def accept_but_no_successor(seat: Seat) -> None:
    """A successor begins and does not come to serve."""
    if seat.number < seat.count:
        accept(seat)
    else:
        obey(seat)


def fail_as_successor(seat: Seat) -> None:
    if seat.number >= seat.count:
        raise ZeroDivisionError("the bug of this test")
    accept(seat)


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


def refuse_fork(number: int, fork: Callable[[], int]) -> Callable[[], int]:
    """number: of the fork, from 0."""
    numbers = itertools.count()

    def forks() -> int:
        if next(numbers) == number:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    return forks


def as_renewed(seat: Seat) -> None:
    say(seat.number, "renewed")
    accept(seat)


def hang_when_replaced(seat: Seat) -> None:
    accept(seat)
    if seat.number < seat.count:
        signal.sigwait({signal.SIGALRM})


RENEWALS: dict[str, Callable[[], Shift | None]] = {
    "renew": lambda: Shift(as_renewed, 3600.0),
    "renew nothing": lambda: None,
    "renew badly": lambda: Shift(as_renewed, 1 / 0),
}
WORKS = {
    work.__name__: work
    for work in (
        obey, obey_once_told, accept, linger, accept_but_no_successor, fail_as_successor, hang_when_replaced,
        watch, drain, hang, fail, fail_when_told, outlive,
    )
}  # fmt: skip

if __name__ == "__main__":
    work, count, *more = sys.argv[1:]
    logging.basicConfig(format="%(message)s", level=logging.INFO if "tell all" in more else logging.WARNING)
    for refusal, number in {"no first fork": 0, "no third fork": 2}.items():
        if refusal in more:
            os.fork = refuse_fork(number, os.fork)
    renew = next((RENEWALS[word] for word in more if word in RENEWALS), None)
    pace = QUICK if "quick" in more else PATIENT
    shift = Shift(WORKS[work], drain_s=0.0 if "quick" in more else 3600.0)
    sys.exit(Parent(int(count), shift, pace, renew).run())

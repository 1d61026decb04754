"""Does a process do what it is to do in its seat, and does its parent learn how it ended?"""

import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.accepting import Loads
from gateway.forks import Child, Seat, Shift


class Family:
    """A parent's ends of what its children hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lifeline, self.other_end = os.pipe()
        self.words, self._to_say = os.pipe()
        self.seat = Seat(3, 2, 4, folder, self.lifeline, Loads(4))

    def start(self, work: Callable[[Seat], None]) -> Child:
        child = Child(3, Shift(work, drain_s=0.0))
        child.start(self.seat, self.other_end)
        return child

    def say(self, *words: object) -> None:
        """By a child."""
        os.write(self._to_say, " ".join(map(str, words)).encode())

    def heard(self) -> str:
        return os.read(self.words, 1000).decode()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Family]:
    folder = tmp_path / "shared"
    folder.mkdir()
    family = Family(folder)
    yield family
    for end in (family.lifeline, family.words, family._to_say):
        os.close(end)


def end_of(child: Child) -> int:
    """Wait for its end: how it was."""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    code = child.ended()
    assert code is not None
    assert child.pid == 0
    return code


def begun(parent: Family, work: Callable[[Seat], None]) -> Child:
    child = parent.start(work)
    assert parent.heard() == "begun"
    return child


def test_it_works_in_its_seat_and_ends_with_it(parent: Family) -> None:
    child = parent.start(
        lambda seat: parent.say(os.getpid(), seat.number, seat.count, seat.seats, seat.folder)
    )
    assert parent.heard() == f"{child.pid} 3 2 4 {parent.folder}"
    assert end_of(child) == 0
    assert parent.folder.exists()
    os.close(parent.other_end)


def test_it_runs_until_it_was_told_otherwise(parent: Family) -> None:
    def wait(seat: Seat) -> None:
        parent.say("begun")
        signal.pause()

    child = begun(parent, wait)
    assert child.ended() is None
    assert child.pid
    child.tell(signal.SIGKILL)
    assert end_of(child) == -signal.SIGKILL
    os.close(parent.other_end)


def test_one_that_fails_says_why_and_by_what_status(
    parent: Family, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(seat: Seat) -> None:
        raise ZeroDivisionError("the bug of this test")

    assert end_of(parent.start(fail)) == 1
    os.close(parent.other_end)


def test_it_learns_of_its_parents_end_and_leaves_nothing_behind(parent: Family) -> None:
    def wait(seat: Seat) -> None:
        select.select([seat.lifeline], [], [])
        parent.say("orphaned")

    child = parent.start(wait)
    os.close(parent.other_end)
    assert parent.heard() == "orphaned"
    assert end_of(child) == 0
    assert not parent.folder.exists()


def test_the_last_of_them_puts_away_what_they_shared(parent: Family) -> None:
    def wait(seat: Seat) -> None:
        parent.say("begun")
        signal.sigwait({signal.SIGUSR2})

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    children = [begun(parent, wait) for _ in range(2)]
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(parent.other_end)
    for child, is_left in zip(children, (True, False), strict=True):
        child.tell(signal.SIGUSR2)
        assert end_of(child) == 0
        assert parent.folder.exists() == is_left

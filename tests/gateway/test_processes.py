"""Does the parent keep the number of its processes, tell them what it is told, and end with the last?"""

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from gateway.processes import IN_MEMORY


class Family:
    """A parent that runs, as `family` describes it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def said(self, lines: int) -> list[list[str]]:
        """The next words of the processes, as they come."""
        return [_line(self.process.stdout).split() for _ in range(lines)]

    def heard(self, lines: int) -> list[list[str]]:
        """The next words of the processes, by their numbers."""
        return sorted(self.said(lines))

    def up(self, count: int) -> list[int]:
        """Wait for so many to have begun; their ids, by their numbers."""
        return [int(pid) for _, _, pid, *_ in self.heard(count)]

    def logged(self, lines: int) -> list[str]:
        return [_line(self.process.stderr) for _ in range(lines)]

    def tell(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)

    def rest(self) -> tuple[int, str, str]:
        """Wait for its end: its exit status, and what was not read of what was said and logged."""
        said, logged = self.process.communicate()
        return self.process.returncode, said, logged


def _line(stream: IO[str] | None) -> str:
    assert stream
    line = stream.readline()
    assert line, "it has ended"
    return line.strip()


@contextmanager
def family(work: str, count: int = 2, *more: str) -> Iterator[Family]:
    argv = [sys.executable, "-m", "tests.gateway.family", work, str(count), *more]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Family(process)
        finally:
            while process.poll() is None:  # a test that failed may leave it in the middle of anything
                process.send_signal(signal.SIGQUIT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)


# Their number


def test_each_has_a_number_and_all_share_a_folder_that_is_theirs_alone() -> None:
    with family("obey", 3) as parent:
        said = parent.heard(3)
        assert [(number, count) for number, _, _, count, _ in said] == [("0", "3"), ("1", "3"), ("2", "3")]
        assert len({pid for _, _, pid, *_ in said}) == 3
        [folder] = {Path(folder) for *_, folder in said}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.parent == IN_MEMORY
        parent.tell(signal.SIGTERM)
        assert parent.rest()[0] == 0
        assert not folder.exists()


def test_one_that_is_killed_is_replaced_under_its_number_and_the_other_stays() -> None:
    with family("obey") as parent:
        first, second = parent.up(2)
        os.kill(second, signal.SIGKILL)
        [[number, _, pid, *_]] = parent.heard(1)
        assert (number, int(pid) in (first, second)) == ("1", False)
        assert parent.logged(1) == [
            f"process 1 (pid {second}) was killed: Killed (9); it starts again in 0 s"
        ]
        parent.tell(signal.SIGTERM)
        assert parent.heard(2) == [["0", "SIGTERM"], ["1", "SIGTERM"]]
        assert parent.rest() == (0, "", "")


def test_one_that_ends_by_itself_is_replaced_too() -> None:
    with family("obey") as parent:
        first, _ = parent.up(2)
        os.kill(first, signal.SIGTERM)
        assert parent.heard(1) == [["0", "SIGTERM"]]
        assert parent.heard(1)[0][:2] == ["0", "up"]
        assert parent.logged(1) == [f"process 0 (pid {first}) ended with status 0; it starts again in 0 s"]
        parent.tell(signal.SIGTERM)
        assert parent.rest()[0] == 0


def test_one_that_dies_again_and_again_has_to_wait_longer_each_time_up_to_a_bound() -> None:
    with family("fail", 1, "quick") as parent:
        log = ""
        while log.count("starts again") < 5:
            log += parent.logged(1)[0] + "\n"
        assert re.findall(r"starts again in (\S+) s", log) == ["0.01", "0.02", "0.04", "0.04", "0.04"]
        assert log.count("ZeroDivisionError: the bug of this test") == 5
        assert log.count(" ended with status 1; ") == 5
        parent.tell(signal.SIGTERM)
        parent.rest()


def test_a_process_that_cannot_be_forked_is_tried_again() -> None:
    with family("obey", 1, "quick", "no first fork") as parent:
        parent.up(1)
        reason = "Resource temporarily unavailable"
        assert parent.logged(1) == [f"process 0 cannot be started: {reason}; it starts again in 0.01 s"]
        parent.tell(signal.SIGTERM)
        assert parent.rest()[0] == 0


def test_what_one_has_to_do_is_seen_by_all_until_it_dies() -> None:
    with family("watch") as parent:
        first, _ = parent.up(2)
        parent.tell(signal.SIGHUP)
        assert parent.heard(1) == [["1", "sees", "0"]]
        os.kill(first, signal.SIGKILL)
        parent.up(1)
        parent.tell(signal.SIGHUP)
        assert parent.heard(1) == [["1", "sees"]]
        parent.tell(signal.SIGTERM)
        assert parent.rest()[0] == 0


# Signals


@pytest.mark.parametrize("told", ["SIGTERM", "SIGINT", "SIGQUIT"])
def test_what_tells_the_parent_to_stop_tells_all(told: str) -> None:
    with family("obey") as parent:
        parent.up(2)
        parent.tell(signal.Signals[told])
        assert parent.heard(2) == [["0", told], ["1", told]]
        assert parent.rest() == (0, "", "")


def test_a_second_signal_hurries_all() -> None:
    with family("drain") as parent:
        parent.up(2)
        parent.tell(signal.SIGINT)
        assert parent.heard(2) == [["0", "SIGINT"], ["1", "SIGINT"]]
        parent.tell(signal.SIGINT)
        assert parent.heard(2) == [["0", "SIGQUIT"], ["1", "SIGQUIT"]]
        assert parent.rest() == (0, "", "")


def test_a_hangup_is_passed_on_and_ends_nothing() -> None:
    with family("obey") as parent:
        parent.up(2)
        for _ in range(2):
            parent.tell(signal.SIGHUP)
            assert parent.heard(2) == [["0", "SIGHUP"], ["1", "SIGHUP"]]
        parent.tell(signal.SIGTERM)
        assert parent.rest()[0] == 0


def test_signals_that_come_before_anybody_listens_are_heard() -> None:
    with family("obey_once_told") as parent:
        assert [words[:2] for words in parent.heard(4)] == [
            ["0", "SIGTERM"],
            ["0", "up"],
            ["1", "SIGTERM"],
            ["1", "up"],
        ]
        assert parent.rest() == (0, "", "")


# The end


def test_the_parent_ends_with_the_last_one() -> None:
    with family("drain") as parent:
        first, second = parent.up(2)
        parent.tell(signal.SIGTERM)
        parent.heard(2)
        os.kill(first, signal.SIGTERM)
        assert parent.heard(1) == [["0", "SIGTERM"]]
        assert parent.process.poll() is None
        os.kill(second, signal.SIGTERM)
        assert parent.rest() == (0, "1 SIGTERM\n", "")  # and none was replaced


def test_one_that_fails_at_the_end_shows_in_the_exit_status() -> None:
    with family("fail_when_told", 1) as parent:
        [pid] = parent.up(1)
        parent.tell(signal.SIGTERM)
        status, _, log = parent.rest()
        assert status == 1
        assert "ZeroDivisionError: the bug of this test" in log
        assert log.endswith(f"process 0 (pid {pid}) ended with status 1\n")


def test_one_that_hangs_is_killed_in_the_end() -> None:
    with family("hang", 1, "quick") as parent:
        [pid] = parent.up(1)
        parent.tell(signal.SIGTERM)
        status, _, log = parent.rest()
        assert status == 1
        assert log.splitlines() == [
            f"process 0 (pid {pid}) does not end, and is killed",
            f"process 0 (pid {pid}) was killed: Killed (9)",
        ]


def test_the_lifeline_ends_with_a_parent_that_was_killed_and_its_folder_with_the_last_process() -> None:
    with family("outlive") as parent:
        *_, [*_, folder] = parent.heard(2)
        assert Path(folder).exists()
        parent.process.kill()
        _, said, _ = parent.rest()  # it reads until the last of them has ended
        assert sorted(said.splitlines()) == ["0 orphaned", "1 orphaned"]
        assert not Path(folder).exists()

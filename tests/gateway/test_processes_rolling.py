"""Do processes make way for others one by one, and never before those others serve?"""

import os
import signal

import pytest

from tests.gateway.test_processes import Family, family


def roll(parent: Family, lines: int) -> list[list[str]]:
    """Begin a rolling restart; what is said first then."""
    parent.tell(signal.SIGUSR2)
    return parent.said(lines)


def short(said: list[list[str]]) -> list[str]:
    return sorted(" ".join(words[:2]) for words in said)


def end(parent: Family, *numbers: int) -> tuple[str, str]:
    """Those are all that run. Returns what was not read of what was said and logged."""
    parent.tell(signal.SIGTERM)
    assert parent.heard(len(numbers)) == [[str(number), "SIGTERM"] for number in numbers]
    status, said, logged = parent.rest()
    assert status == 0
    return said, logged


def test_each_makes_way_once_its_successor_serves() -> None:
    with family("accept", 3) as parent:
        before = set(parent.up(3))
        said = roll(parent, 6)
        came = {int(words[2]) for words in said if words[1] == "up"}
        assert len(came - before) == 3
        assert [words[0] for words in said if words[1] == "SIGUSR1"] == ["0", "1", "2"]
        for number in range(3):
            place = said.index([str(number), "SIGUSR1"])
            assert [words[1] for words in said[:place]].count("up") > number
        parent.tell(signal.SIGTERM)
        assert [word for _, word in parent.heard(3)] == ["SIGTERM"] * 3
        assert parent.rest() == (0, "", "")


def test_nobody_has_the_seat_of_one_that_is_still_there() -> None:
    with family("linger") as parent:
        first, second = parent.up(2)
        assert short(roll(parent, 4)) == ["0 SIGUSR1", "1 SIGUSR1", "2 up", "3 up"]
        parent.tell(signal.SIGUSR2)  # all seats are taken
        parent.tell(signal.SIGHUP)
        assert short(parent.said(4)) == ["0 SIGHUP", "1 SIGHUP", "2 SIGHUP", "3 SIGHUP"]
        os.kill(second, signal.SIGTERM)
        assert short(parent.said(3)) == ["1 SIGTERM", "1 up", "2 SIGUSR1"]
        os.kill(first, signal.SIGTERM)
        assert short(parent.said(3)) == ["0 SIGTERM", "0 up", "3 SIGUSR1"]
        assert end(parent, 0, 1, 2, 3) == ("", "")


def test_a_rolling_restart_asked_for_during_another_comes_after_it() -> None:
    with family("accept") as parent:
        parent.up(2)
        parent.tell(signal.SIGUSR2)
        [first] = parent.said(1)
        parent.tell(signal.SIGUSR2)
        said = [first, *parent.said(7)]
        assert sorted(word for _, word, *_ in said) == ["SIGUSR1"] * 4 + ["up"] * 4
        parent.tell(signal.SIGTERM)
        parent.heard(2)
        assert parent.rest() == (0, "", "")


def test_successors_do_what_is_said_then_and_so_does_who_replaces_one_that_dies() -> None:
    with family("accept", 1, "renew") as parent:
        parent.up(1)
        said = roll(parent, 3)
        assert short(said) == ["0 SIGUSR1", "1 renewed", "1 up"]
        [pid] = [int(words[2]) for words in said if words[1] == "up"]
        os.kill(pid, signal.SIGKILL)
        assert short(parent.said(2)) == ["1 renewed", "1 up"]
        assert parent.logged(1)[0].endswith("was killed: Killed (9); it starts again in 0 s")
        assert end(parent, 1) == ("", "")


@pytest.mark.parametrize(
    ("renewal", "log"),
    [
        ("renew nothing", ""),
        ("renew badly", "no process is replaced, by a bug of the gateway\nTraceback"),
    ],
)
def test_where_nothing_can_be_renewed_nobody_is_replaced(renewal: str, log: str) -> None:
    with family("accept", 2, renewal) as parent:
        parent.up(2)
        parent.tell(signal.SIGUSR2)
        parent.tell(signal.SIGHUP)
        assert parent.heard(2) == [["0", "SIGHUP"], ["1", "SIGHUP"]]
        said, logged = end(parent, 0, 1)
        assert said == ""
        assert logged.startswith(log)
        assert bool(logged) == bool(log)


# Successors that do not come to serve


def test_a_successor_that_fails_ends_the_rolling_restart() -> None:
    with family("fail_as_successor") as parent:
        parent.up(2)
        parent.tell(signal.SIGUSR2)
        log = ""
        while "rolling restart" not in log:
            log = parent.logged(1)[0]
        assert log.startswith("process 2 (pid ")
        assert log.endswith(
            ") ended with status 1 before it served; the rolling restart ends, and 2 of 2 processes stay"
        )
        assert end(parent, 0, 1) == ("", "")


def test_a_successor_that_cannot_be_forked_ends_it_too() -> None:
    with family("accept", 2, "no third fork") as parent:
        parent.up(2)
        parent.tell(signal.SIGUSR2)
        assert parent.logged(1) == [
            "process 2 cannot be started: Resource temporarily unavailable before it served; "
            "the rolling restart ends, and 2 of 2 processes stay"
        ]
        assert sorted(word for _, word, *_ in roll(parent, 4)) == ["SIGUSR1"] * 2 + ["up"] * 2  # another time
        parent.tell(signal.SIGTERM)
        parent.heard(2)
        assert parent.rest() == (0, "", "")


def test_a_successor_that_does_not_come_to_serve_is_killed_and_ends_it() -> None:
    with family("accept_but_no_successor", 2, "quick") as parent:
        parent.up(2)
        [[number, _, pid, *_]] = roll(parent, 1)
        assert number == "2"
        assert parent.logged(2) == [
            f"process 2 (pid {pid}) does not come to serve, and is killed",
            f"process 2 (pid {pid}) was killed: Killed (9) before it served; "
            "the rolling restart ends, and 2 of 2 processes stay",
        ]
        assert end(parent, 0, 1) == ("", "")


def test_a_successor_that_does_not_serve_yet_is_told_to_stop_with_all_others() -> None:
    with family("accept_but_no_successor") as parent:
        parent.up(2)
        assert short(roll(parent, 1)) == ["2 up"]
        assert end(parent, 0, 1, 2) == ("", "")


# Those that were replaced


def test_one_that_dies_while_its_successor_begins_is_started_again_and_then_replaced() -> None:
    with family("accept_but_no_successor") as parent:
        first, _ = parent.up(2)
        assert short(roll(parent, 1)) == ["2 up"]
        os.kill(first, signal.SIGKILL)
        assert short(parent.said(1)) == ["0 up"]
        assert parent.logged(1)[0].endswith("was killed: Killed (9); it starts again in 0 s")
        assert end(parent, 0, 1, 2) == ("", "")


def test_one_that_was_replaced_is_not_started_again_however_it_ends() -> None:
    with family("linger", 1) as parent:
        [pid] = parent.up(1)
        assert short(roll(parent, 2)) == ["0 SIGUSR1", "1 up"]
        os.kill(pid, signal.SIGKILL)
        assert parent.logged(1) == [f"process 0 (pid {pid}) was killed: Killed (9)"]
        assert end(parent, 1) == ("", "")


def test_one_that_was_replaced_and_hangs_is_killed_in_the_end() -> None:
    with family("hang_when_replaced", 1, "quick") as parent:
        [pid] = parent.up(1)
        assert short(roll(parent, 2)) == ["0 SIGUSR1", "1 up"]
        assert parent.logged(2) == [
            f"process 0 (pid {pid}) does not end, and is killed",
            f"process 0 (pid {pid}) was killed: Killed (9)",
        ]
        assert end(parent, 1) == ("", "")


def test_the_parents_own_word_means_nothing_to_the_parent() -> None:
    with family("obey") as parent:
        parent.up(2)
        parent.tell(signal.SIGUSR1)
        parent.tell(signal.SIGHUP)
        assert parent.heard(2) == [["0", "SIGHUP"], ["1", "SIGHUP"]]
        assert end(parent, 0, 1) == ("", "")


def test_each_step_is_told() -> None:
    with family("accept", 1, "tell all") as parent:
        [_] = parent.up(1)
        [[_, _, pid, *_]] = [words for words in roll(parent, 2) if words[1] == "up"]
        assert parent.logged(3) == [
            "a rolling restart begins: 1 processes make way, one by one",
            f"process 1 (pid {pid}) serves, and 0 makes way",
            "the rolling restart is complete: all 1 processes were replaced",
        ]
        assert end(parent, 1) == ("", "")

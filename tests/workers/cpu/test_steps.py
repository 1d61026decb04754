"""Does a person see what is going on, on a terminal and in a log file?"""

import io
import threading

import pytest

from workers.cpu import steps
from workers.cpu.steps import Steps


class Screen(io.StringIO):
    """A terminal, or a file, that tells when a given text has been drawn."""

    def __init__(self, awaited: str = "", terminal: bool = False) -> None:
        super().__init__()
        self._awaited = awaited
        self._terminal = terminal
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._awaited in text:
            self.drawn.set()
        return written


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_steps_are_numbered_and_timed_in_a_log_file() -> None:
    out, clock = Screen(), Clock()
    account = Steps(out, clock)
    with account.step("Install"):
        clock.now_s += 7.9
    with account.step("Convert"):
        clock.now_s += 65
    assert out.getvalue() == (
        "[1] Install\n[1] Install: done in 7 s\n[2] Convert\n[2] Convert: done in 1 min 05 s\n"
    )


def test_failed_step_is_marked_and_its_exception_passes() -> None:
    out = Screen()
    with pytest.raises(ValueError, match="broken"), Steps(out, Clock()).step("Install"):
        raise ValueError("broken")
    assert out.getvalue().endswith("[1] Install: failed after 0 s\n")


def test_log_file_repeats_the_detail_of_a_silent_step_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "REPEAT_S", 0.001)
    out = Screen(awaited="unpacking")
    with Steps(out, Clock()).step("Install") as detail:
        detail("unpacking")
        assert out.drawn.wait(10)
    assert "[1] Install (0 s) unpacking\n" in out.getvalue()


def test_terminal_redraws_one_line_cut_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "REDRAW_S", 0.001)
    monkeypatch.setenv("COLUMNS", "21")
    out = Screen(awaited="[1] Install (0 s) unp", terminal=True)
    with Steps(out, Clock()).step("Install") as detail:
        detail("unpacking 100 packages")
        assert not out.drawn.wait(0.05), "a line as long as the terminal is wide would wrap"
    assert "\r\x1b[2K[1] Install (0 s) un\r" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[2K[1] Install: done in 0 s\n")
    assert out.getvalue().count("\n") == 1


def test_steps_go_to_standard_output_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps().step("Install"):
        pass
    assert capsys.readouterr().out.startswith("[1] Install\n")

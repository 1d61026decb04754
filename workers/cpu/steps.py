"""What does a person see while something long is being set up?"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Detail = Callable[[str], None]
"""Says what a running step is doing right now; the text replaces the one before it."""

REDRAW_S = 0.25  # on a terminal: whole seconds are shown, so a few redraws a second look alive
REPEAT_S = 10.0  # in a log file: often enough to see that it lives, seldom enough to read


class Steps:
    """Numbered steps with their elapsed time: one live line on a terminal, plain lines elsewhere."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._number = 0

    @contextmanager
    def step(self, title: str) -> Iterator[Detail]:
        """Time one step; an exception marks it as failed and passes."""
        self._number += 1
        with _Step(self._out, f"[{self._number}] {title}", self._clock) as step:
            yield step.detail


class _Step:
    """One running step, drawn by a thread of its own because the work itself may stay silent for minutes."""

    def __init__(self, out: TextIO, title: str, clock: Callable[[], float]) -> None:
        self._out = out
        self._title = title
        self._clock = clock
        self._started_s = clock()
        self._text = ""
        self._live = out.isatty()
        self._ended = threading.Event()
        self._drawer = threading.Thread(target=self._draw_until_ended, daemon=True)

    def detail(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> _Step:
        if not self._live:
            self._write(f"{self._title}\n")
        self._drawer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._drawer.join()
        outcome = "failed after" if kind else "done in"
        self._write(f"{self._clear()}{self._title}: {outcome} {self._elapsed()}\n")

    def _draw_until_ended(self) -> None:
        while not self._ended.wait(REDRAW_S if self._live else REPEAT_S):
            line = f"{self._title} ({self._elapsed()}) {self._text}"
            width = shutil.get_terminal_size().columns - 1
            self._write(self._clear() + line[:width] if self._live else f"{line}\n")

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(self._clock() - self._started_s), 60)
        return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"

    def _clear(self) -> str:
        return "\r\x1b[2K" if self._live else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

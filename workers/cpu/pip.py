"""How is pip run, and what does its output say about how far it is?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workers.cpu import child
from workers.cpu.steps import Detail

PIP = "pip==26.3"  # the first thing in an environment: older ones cannot report progress without a terminal
MIB = 1 << 20

_LOOKS_AT = re.compile(r"(?:Collecting|Processing|Requirement already satisfied:) (\S+)")
_FETCHES = re.compile(r"\s*Downloading (\S+)")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_UNPACKS = "Installing collected packages: "


def upgrade(python: Path, detail: Detail) -> None:
    """Bring an environment's pip to the release whose output `Progress` reads."""
    child.run([*_pip(python), "install", PIP], Progress(detail).line)


def install(
    python: Path, arguments: Sequence[str | Path], detail: Detail, scratch: Path | None = None
) -> None:
    """`pip install` into an environment; downloads wait in `scratch`, or where pip likes to put them.

    Raises child.CommandFailed with the end of pip's output.
    """
    argv = [*_pip(python), "install", "--progress-bar", "raw", *arguments]
    child.run(argv, Progress(detail).line, {"TMPDIR": str(scratch)} if scratch else None)


def download(python: Path, requirement: str, to: Path, detail: Detail) -> Path:
    """Fetch one wheel, without what it depends on; returns its path."""
    argv = [*_pip(python), "download", "--progress-bar", "raw", "--no-deps", "--dest", to, requirement]
    child.run(argv, Progress(detail).line)
    (wheel,) = to.glob("*.whl")
    return wheel


def _pip(python: Path) -> list[str | Path]:
    # -I: a PYTHONPATH or a user's site-packages must not decide what counts as installed.
    return [python, "-I", "-m", "pip", "--disable-pip-version-check"]


class Progress:
    """Turns pip's lines into a short account: which package, how much of it, how many so far."""

    def __init__(self, detail: Detail) -> None:
        self._detail = detail
        self._seen = 0
        self._file = ""

    def line(self, text: str) -> None:
        if match := _PROGRESS.match(text):
            done, total = (int(number) for number in match.groups())
            if total >= MIB:
                self._detail(f"package {self._seen}: {self._file} {done // MIB} of {total // MIB} MB")
        elif match := _FETCHES.match(text):
            self._file = _short(match[1])
        elif match := _LOOKS_AT.match(text):
            self._seen += 1
            self._detail(f"package {self._seen}: {_short(match[1])}")
        elif text.startswith(_UNPACKS):
            count = text.removeprefix(_UNPACKS).count(",") + 1
            self._detail(f"unpacking {count} package{'s' if count > 1 else ''}")


def _short(location: str) -> str:
    """`https://…/torch-2.13.0%2Bcpu-cp311-….whl` → `torch-2.13.0+cpu`."""
    name = location.rsplit("/", 1)[-1].replace("%2B", "+")
    return "-".join(name.split("-")[:2]) if name.endswith(".whl") else name

"""A benchmark's program that is ended by a signal."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GUARD_S = 60.0


async def ended_by(
    number: signal.Signals, module: Sequence[str], programs: int, folder: Path, told: str = ""
) -> int | None:
    """The exit status of `python -m` module, signalled once it has started so many programs.

    They must have ended, too. folder: for its temporary files, which one that is killed leaves there. told: a
    line that it writes to its standard error before that.
    """
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *module),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert program.stderr is not None
    line = b""
    while told and line.decode().strip() != told:
        line = await program.stderr.readline()
        assert line, "it ended before it told that"
    deadline_s = time.monotonic() + GUARD_S
    while len(started := _descendants(program.pid)) < programs:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)
    os.kill(program.pid, number)
    await program.communicate()
    async with asyncio.timeout(GUARD_S):
        while any(map(_is_running, started)):  # noqa: ASYNC110 - no children of ours, so nobody tells
            await asyncio.sleep(0.05)
    return program.returncode


def _descendants(pid: int) -> list[int]:
    """All processes below this one."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    children = [int(child) for child in text.split()]
    return [*children, *(below for child in children for below in _descendants(child))]


def _is_running(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has asked after."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"

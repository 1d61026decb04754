"""What does the person who started the fleet see?"""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from workers.supervisor import State

STYLES: dict[State, str] = {
    "starting": "cyan",
    "healthy": "bold green",
    "died": "bold red",
    "stopping": "yellow",
    "stopped": "dim",
}


class StartProgress:
    """One lasting line per change of a worker; on a terminal also a live line per worker that is starting.

    The live line shows the last line of the worker's log, which is how vLLM tells of loading and compiling.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._starting: dict[str, TaskID] = {}
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[worker]}", style="bold"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", style="dim", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def change(self, worker_id: str, state: State, detail: str = "") -> None:
        """Prints the change with the seconds since the start of the fleet."""
        elapsed_s = time.monotonic() - self._began
        line = Text().append(f"{elapsed_s:7.1f} s  ", "dim")
        line.append(f"{worker_id}  ", "bold").append(state, STYLES[state])
        if detail:
            line.append(" " * (10 - len(state)) + detail)
        # Never folded: each change stays one line for whoever reads it from a file.
        self._console.print(line, soft_wrap=True)
        if state == "starting":
            self._starting[worker_id] = self._live.add_task("", total=None, worker=worker_id)
        elif worker_id in self._starting:
            self._live.remove_task(self._starting.pop(worker_id))

    def progress(self, worker_id: str, line: str) -> None:
        """Shows what a starting worker last wrote, on a terminal only."""
        if worker_id in self._starting:
            self._live.update(self._starting[worker_id], description=line[: self._console.width // 2])

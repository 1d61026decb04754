"""What is seen while a fleet starts, on a terminal and elsewhere."""

import io
import re

from rich.console import Console

from workers.progress import StartProgress


def shown(terminal: bool) -> str:
    """The output of one worker that starts, says a word, is well, dies and starts again."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=80)
    with StartProgress(console) as progress:
        progress.change("w0", "starting", "log /x/w0.log")
        progress.progress("w0", "Loading [shards] 1/4")
        progress._live.refresh()
        progress.change("w0", "healthy", "http://127.0.0.1:8101")
        progress.progress("w0", "late")
        progress.change("w0", "died", "exited with status 9")
        progress.change("w0", "starting", "log /x/w0.log")
    return output.getvalue()


def test_elsewhere_each_change_is_one_plain_line() -> None:
    lines = [re.sub(r"^ *[0-9.]+ s", "T", line) for line in shown(terminal=False).splitlines()]
    assert lines == [
        "T  w0  starting  log /x/w0.log",
        "T  w0  healthy   http://127.0.0.1:8101",
        "T  w0  died      exited with status 9",
        "T  w0  starting  log /x/w0.log",
    ]


def test_on_a_terminal_a_starting_worker_shows_the_last_line_of_its_log() -> None:
    output = shown(terminal=True)
    assert "Loading [shards] 1/4" in output
    assert "late" not in output


def test_the_live_line_goes_when_the_worker_is_well() -> None:
    with StartProgress(Console(file=io.StringIO(), force_terminal=True)) as progress:
        progress.change("w0", "starting")
        assert [task.fields["worker"] for task in progress._live.tasks] == ["w0"]
        progress.change("w0", "healthy")
        assert progress._live.tasks == []


def test_long_details_stay_on_one_line() -> None:
    output = io.StringIO()
    with StartProgress(Console(file=output, width=40)) as progress:
        progress.change("w0", "starting", "log " + "x" * 100)
    assert output.getvalue().count("\n") == 1

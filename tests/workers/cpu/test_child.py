"""Is a long command heard while it works, and does it end when we do?"""

import os
import sys
from pathlib import Path

import pytest

from workers.cpu import child

PRINTS_ITS_ID_AND_STAYS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
STAYS_IN_SPITE_OF_SIGTERM = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print(os.getpid(), flush=True); time.sleep(600)"
)


def test_lines_of_both_streams_are_handed_over_in_order() -> None:
    lines: list[str] = []
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr)"
    child.run([sys.executable, "-c", code], lines.append)
    assert lines == ["one", "two"]


def test_variables_are_added_to_our_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    lines: list[str] = []
    code = "import os; print(os.environ['OURS'] + os.environ['ADDED'])"
    child.run([sys.executable, "-c", code], lines.append, {"ADDED": "2"})
    assert lines == ["12"]


def test_failure_carries_the_command_its_status_and_its_last_lines() -> None:
    code = "import sys; [print(number) for number in range(100)]; sys.exit(3)"
    with pytest.raises(child.CommandFailed) as failed:
        child.run([Path(sys.executable), "-c", code], lambda line: None)
    assert failed.value.status == 3
    assert failed.value.tail == [str(number) for number in range(75, 100)]
    assert str(failed.value).startswith(f"`{sys.executable} -c ")
    assert str(failed.value).endswith("ended with status 3:\n" + "\n".join(failed.value.tail))


@pytest.mark.parametrize("code", [PRINTS_ITS_ID_AND_STAYS, STAYS_IN_SPITE_OF_SIGTERM])
def test_interruption_ends_the_command_and_passes(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STOP_S", 0.2)
    started: list[int] = []

    def interrupt(line: str) -> None:
        started.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.run([sys.executable, "-c", code], interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_interruption_after_the_command_has_ended_signals_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))

    def interrupt_late(line: str) -> None:
        os.waitid(os.P_PID, int(line), os.WEXITED | os.WNOWAIT)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.run([sys.executable, "-c", "import os; print(os.getpid(), flush=True)"], interrupt_late)
    assert signalled == []

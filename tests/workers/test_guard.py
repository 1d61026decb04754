"""The guard kills what is left when its pipe ends, and nothing else."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from workers.guard import Guard


@contextmanager
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process group of one."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_groups_still_watched_at_the_end_are_killed_and_others_are_not() -> None:
    with sleeper() as lost, sleeper() as stopped:
        with Guard() as guard:
            guard.watch(lost.pid)
            guard.watch(stopped.pid)
            guard.forget(stopped.pid)
        assert lost.wait() == -signal.SIGKILL
        assert stopped.poll() is None


def test_a_group_that_is_gone_already_does_not_stop_the_guard() -> None:
    with sleeper() as gone, sleeper() as lost:
        gone.kill()
        gone.wait()
        with Guard() as guard:
            guard.watch(gone.pid)
            guard.watch(lost.pid)
        assert lost.wait() == -signal.SIGKILL


def test_signals_meant_for_the_supervisor_do_not_end_the_guard() -> None:
    with sleeper() as lost:
        with Guard() as guard:
            guard.watch(lost.pid)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                guard._process.send_signal(number)
        assert lost.wait() == -signal.SIGKILL

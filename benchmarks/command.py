"""What must be in place before anything is measured, and how is it told that it is not?"""

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import record

FILE = click.Path(dir_okay=False, path_type=Path)
INTERRUPTED = 130  # the exit status that shells give to Ctrl-C
SPARE_FILES = 64  # open files besides the sockets: libraries, event loop, terminal


class CannotStart(click.ClickException):
    """Nothing was measured. Exit status 2, since 1 says that something was, and is not as it should be."""

    exit_code = 2


def prepare(json_file: Path) -> None:
    """Raises CannotStart where the results could not be kept."""
    try:
        record.prepare(json_file)
    except OSError as error:
        raise CannotStart(f"cannot write {json_file}: {error.strerror}") from error


def allow_open_files(needed: int, option: str) -> None:
    """Raise this process's own limit if need be; its children inherit it.

    option: what to lower instead. Raises CannotStart where the system forbids it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise CannotStart(
            f"{needed} open files are needed and {hard} allowed: "
            f"lower {option}, or raise the limit with `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Other signals to end are as Ctrl-C, so that the programs that were started end too."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)

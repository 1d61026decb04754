"""How are a few long-running programs started, watched and stopped together?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.5  # a start takes a minute; half a second later is soon enough
PROBE_TIMEOUT_S = 2.0
KILL_S = 10.0  # what a program that was asked twice may still take
TAIL_LINES = 20

# Proxies of the environment are for the outside; these programs are on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServiceFailed(Exception):
    """A program ended or never became ready; the message names it and quotes the end of its log."""


@dataclass(frozen=True)
class Service:
    """A running program; everything it prints goes to its log."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise ServiceFailed if the program has ended."""
        if (status := self.process.poll()) is not None:
            raise ServiceFailed(f"{self.name} ended with status {status}. {self.tail()}")

    def tail(self) -> str:
        """The end of the log, introduced by where it lies."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n    ".join([f"The end of {self.log}:", *lines])


@contextmanager
def running(
    name: str, argv: Sequence[str | Path], log: Path, stop_s: float, env: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """Run a program for as long as the block lasts; it has `stop_s` to end by itself after SIGTERM."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # Ctrl-C reaches us alone, so that the order of stopping is ours
        ) as process,
    ):
        try:
            yield Service(name, log, process)
        finally:
            _stop(process, stop_s)


def _stop(process: subprocess.Popen[bytes], stop_s: float) -> None:
    """Ask once, ask again (our programs then stop at once), then kill the whole group.

    Ctrl-C while waiting means the same as running out of time: go to the next, harder measure.
    """
    for number, wait_s in ((signal.SIGTERM, stop_s), (signal.SIGTERM, KILL_S), (signal.SIGKILL, KILL_S)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
        try:
            process.wait(wait_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def wait_ready(url: str, services: Sequence[Service], limit_s: float) -> None:
    """Wait until a GET is answered with 200.

    Raises ServiceFailed if a program ends meanwhile or `limit_s` passes.
    """
    deadline_s = time.monotonic() + limit_s
    while not _answers(url):
        for service in services:
            service.check()
        if time.monotonic() > deadline_s:
            raise ServiceFailed(f"{url} did not answer within {limit_s:.0f} s. {services[-1].tail()}")
        time.sleep(POLL_S)


def _answers(url: str) -> bool:
    try:
        with _direct.open(url, timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False  # not listening yet, or not ready: HTTPError is a URLError


def watch(services: Sequence[Service]) -> None:
    """Wait until one of the programs ends, and raise ServiceFailed for it."""
    while True:
        for service in services:
            service.check()
        time.sleep(POLL_S)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: closing ones do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

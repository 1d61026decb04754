"""Against which Redis is it measured? One of its own on loopback, with nothing else to do."""

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from deploy.services import Service, ServiceFailed, running

START_LIMIT_S = 10.0
STOP_S = 5.0
POLL_S = 0.01
# It ends with us, also if we are killed.
COMMAND = ("setpriv", "--pdeathsig", "TERM", "--", "redis-server", "--save", "", "--appendonly", "no")


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running redis-server."""

    service: Service
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cpu_s(self) -> float:
        """Processor time it has taken so far; the kernel counts it in hundredths of a second."""
        stat = Path(f"/proc/{self.service.process.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def version(self) -> str:
        with redis.Redis(port=self.port) as client:
            return str(client.info("server")["redis_version"])


@contextmanager
def running_redis() -> Iterator[RedisServer]:
    """Ready to serve; it ends with the block. Raises ServiceFailed, or OSError without setpriv."""
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        port = _free_port()
        place = ("--bind", "127.0.0.1", "--port", str(port), "--dir", folder)
        with running("redis-server", [*COMMAND, *place], Path(folder) / "redis.log", STOP_S) as service:
            _wait_until_it_answers(service, port)
            yield RedisServer(service, port)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _wait_until_it_answers(service: Service, port: int) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not _answers(port):
        service.check()
        if time.monotonic() > deadline_s:
            raise ServiceFailed(f"redis-server did not answer within {START_LIMIT_S:.0f} s. {service.tail()}")
        time.sleep(POLL_S)


def _answers(port: int) -> bool:
    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False

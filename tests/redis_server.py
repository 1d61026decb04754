"""A real redis-server for tests: on a port of its own, with nothing on disk."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.ports import free_ports

START_LIMIT_S = 10


class RedisServer:
    """`with RedisServer() as server`. It can be frozen, killed, and started again empty on the same port."""

    def __init__(self, *options: str, port: int = 0, sentinel: bool = False) -> None:
        """options: as on redis-server's command line; a sentinel's file holds nothing else."""
        self.port = port or free_ports(1)[0]
        self._options: Sequence[str] = options
        self._is_sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        argv = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        if self._is_sentinel:
            file = self._folder / "sentinel.conf"
            file.touch()
            argv[1:1] = [str(file), "--sentinel"]
        else:
            argv += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        self._process = subprocess.Popen([*argv, *self._options], stdout=subprocess.DEVNULL)
        try:
            self._wait_until_it_answers()
        except OSError:
            self.kill()
            raise

    def _wait_until_it_answers(self) -> None:
        ends = time.monotonic() + START_LIMIT_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64):  # also an error, as where a password is wanted
                        return
            except OSError:
                if time.monotonic() > ends:
                    raise
            time.sleep(0.01)

    def freeze(self) -> None:
        """It stops answering; its sockets stay open."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self._frozen = False

    def kill(self) -> None:
        """It is gone with all it knew; start() begins anew on the same port."""
        if self._process is None:
            return
        if self._frozen:
            self.thaw()
        self._process.kill()
        self._process.wait()
        self._process = None
        shutil.rmtree(self._folder)

    def _signal(self, number: int) -> None:
        assert self._process is not None, "it is not running"
        os.kill(self._process.pid, number)

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

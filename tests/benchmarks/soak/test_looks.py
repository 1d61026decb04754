"""Is what a process holds what it is told to hold?"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks.soak.looks import files, look, memory_mb, of_redis, processes, sockets, states
from tests.redis_server import RedisServer

MB = 1_000_000
# A parent, and a child that holds memory, a listening socket, and both ends of a connection.
HOLDER = """
import os, socket
if os.fork():
    os.wait()
held = b"x" * 30_000_000
listener = socket.create_server(("127.0.0.1", 0))
caller = socket.create_connection(listener.getsockname())
taken, _ = listener.accept()
print("up", flush=True)
input()
"""


@pytest.fixture
def holder() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n\n")


@pytest.fixture
def port() -> Iterator[int]:
    with RedisServer() as server:
        yield server.port


def test_memory_files_and_sockets_are_those_of_each_process(holder: int, port: int) -> None:
    parent, child = processes(holder)
    assert parent == holder
    assert memory_mb(child)[1] - memory_mb(parent)[1] > 25
    assert memory_mb(child)[0] >= memory_mb(child)[1]
    assert sockets(files(child), states()) == {"listening": 1, "established": 2}
    assert sockets(files(parent), states()) == {}
    seen = look(holder, port)
    assert (seen["sockets, established"], seen["sockets, close wait"], seen["sockets, other"]) == (2, 0, 0)
    assert seen["files of process 1"] - seen["files of parent"] == 3
    assert seen["PSS of process 1, MB"] > 25
    assert seen["memory of Redis, MB"] > 0


def test_an_end_that_nobody_closes_shows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            taken, _ = listener.accept()
        taken.recv(1)
        with taken:
            assert sockets(files(os.getpid()), states())["close wait"] == 1


def test_keys_in_redis_are_counted(port: int) -> None:
    assert of_redis(port)["keys in Redis"] == 0


def test_a_gateway_that_has_ended_is_told_of(port: int) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        with pytest.raises(LookupError, match="ended"):
            look(process.pid, port)

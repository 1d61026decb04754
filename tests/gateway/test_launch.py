"""Does a gateway serve until a signal, and what do successors of its processes do?"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.configuration import ConfigurationError, parse
from gateway.launch import Launch, run
from gateway.server import PortTaken, listen
from gateway.settings import Settings
from tests.conftest import MODEL, configuration
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import NOWHERE
from tests.fakes import FakeWorker
from tests.gateway.test_app import calling

WORKERS = [{"id": "w0", "url": NOWHERE, "model": MODEL}]


def settings_of(**sections: Any) -> Settings:
    return parse(configuration(**({"workers": WORKERS} | sections)), {})


@pytest.fixture
def ports() -> Iterator[tuple[socket.socket, socket.socket]]:
    with listen("port", "127.0.0.1", 0) as public, listen("admin_port", "127.0.0.1", 0) as admin:
        yield public, admin


class Told:
    """A file that says what a test wants it to."""

    def __init__(self, ports: tuple[socket.socket, socket.socket]) -> None:
        self.load: Callable[[], Settings] = settings_of
        self.launch = Launch(*ports, Path("gateway.toml"), lambda: self.load(), b"salt")

    def says(self, **sections: Any) -> None:
        self.load = lambda: settings_of(**sections)


@pytest.fixture
def file(ports: tuple[socket.socket, socket.socket]) -> Told:
    return Told(ports)


async def test_a_gateway_serves_until_a_signal(ports: tuple[socket.socket, socket.socket]) -> None:
    async with FakeWorker() as worker:
        settings = parse(configuration(worker), {})
        launched = Launch(*ports, Path("gateway.toml"), lambda: settings, b"salt")
        serving = asyncio.create_task(launched.serve(settings))
        async with calling(ports[0].getsockname()[1]) as client:
            assert (await client.post(COMPLETIONS, json=QUESTION)).status_code == 200
            os.kill(os.getpid(), signal.SIGTERM)
            await serving
            with pytest.raises(httpx.ConnectError):
                await client.get("/health")


def test_a_gateway_whose_port_is_taken_does_not_start(tmp_path: Path) -> None:
    with listen("port", "127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        settings = settings_of(server={"port": port})
        with pytest.raises(PortTaken, match=f"server.port = {port}"):
            run(settings, tmp_path / "gateway.toml", lambda: settings)


# Successors


def test_successors_may_take_as_long_to_end_as_the_file_says_by_now(file: Told) -> None:
    file.says(server={"drain_s": 7})
    shift = file.launch.renewed(settings_of())
    assert shift is not None
    assert shift.drain_s == 7


@pytest.mark.parametrize(
    ("server", "names"),
    [
        ({"processes": 2, "port": 80}, "server.port, server.processes"),
        ({"admin_port": 81}, "server.admin_port"),
        ({"host": "::1", "admin_host": "::1"}, "server.host, server.admin_host"),
    ],
)
def test_nobody_is_replaced_where_the_sockets_or_their_number_would_change(
    file: Told, server: dict[str, Any], names: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.says(server=server, store={"url": "redis://127.0.0.1:9"})
    assert file.launch.renewed(settings_of()) is None
    assert caplog.messages == [
        f"no process is replaced by what gateway.toml says now: it changes {names}, "
        "for which the gateway has to be stopped and started"
    ]


def test_nobody_is_replaced_by_a_file_with_problems(file: Told, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Settings:
        raise ConfigurationError(["one problem", "another"])

    file.load = load
    assert file.launch.renewed(settings_of()) is None
    assert caplog.messages == ["no process is replaced by what gateway.toml says now: one problem; another"]


def test_nobody_is_replaced_where_records_could_not_be_kept(
    file: Told, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.says(usage={"records": str(tmp_path / "nowhere" / "records")})
    assert file.launch.renewed(settings_of()) is None
    [message] = caplog.messages
    assert message.startswith("no process is replaced by what gateway.toml says now: ")
    assert "records" in message
    file.says(usage={"records": str(tmp_path / "records")})
    assert file.launch.renewed(settings_of()) is not None

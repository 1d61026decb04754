"""Does `gateway serve` begin and end as a program should?"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import KEY, MODEL
from tests.fakes import FakeWorker, Received, Reply
from tests.gateway.configuration.files import ANY_PORT, GOOD

DEADLINE_S = 30  # for a process to start or end; a test that is well waits for none of it
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
PROMPT = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A configuration on free ports, whose worker is down."""
    path = tmp_path / "gateway.toml"
    write(path, ANY_PORT + GOOD)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("setting", ["port", "admin_port"])
def test_a_port_that_is_taken_is_told_in_one_line(good: Path, setting: str) -> None:
    with taken_port() as port:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "serve", "--config", good],
            env=ENVIRON | {f"GATEWAY_SERVER_{setting.upper()}": str(port)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    said = f"Error: server.{setting} = {port}: cannot listen on 127.0.0.1: Address already in use"
    assert line.startswith(said)
    assert line.endswith(f". Stop what uses it, or choose another {setting}")


class Serving:
    """`gateway serve` as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""

    async def told(self, pattern: str) -> str:
        """Wait until it logs a line with a match; returns the match's first group."""
        assert self.process.stderr
        async with asyncio.timeout(DEADLINE_S):
            while not (found := re.search(pattern, self.log)):
                line = await self.process.stderr.readline()
                assert line, f"it ended, and never said {pattern!r}:\n{self.log}"
                self.log += line.decode()
        return found[1]

    async def ended(self) -> int:
        """Wait for its end; returns the exit status. The rest of what it logged is in `log` then."""
        async with asyncio.timeout(DEADLINE_S):
            _, rest = await self.process.communicate()
        self.log += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def serving(config: Path, **environ: str) -> AsyncIterator[tuple[Serving, httpx.AsyncClient]]:
    """Serve until told to stop, with a client of it; killed if the test leaves it running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--config", str(config)),
        env=ENVIRON | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    running = Serving(process)
    try:
        url = await running.told(r"serving on (\S+), metrics on http://127")
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, trust_env=False, timeout=DEADLINE_S
        ) as client:
            # It answers only after it listens for signals too.
            assert (await client.get("/health")).status_code == 200
            yield running, client
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ready(client: httpx.AsyncClient) -> None:
    """Wait until the gateway has found its worker."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - the gateway tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_ends_well_when_it_is_told_to(good: Path, number: int) -> None:
    async with serving(good) as (running, _):
        running.process.send_signal(number)

        assert await running.ended() == 0
    assert "Traceback" not in running.log


async def test_serve_takes_its_fields_from_the_environment(good: Path) -> None:
    async with serving(good, GATEWAY_AUTH_REQUIRED="false") as (running, client):
        answer = await client.get("/v1/models", headers={"authorization": ""})
        running.process.send_signal(signal.SIGTERM)

        assert await running.ended() == 0
    assert answer.status_code == 200


async def test_a_second_signal_ends_a_drain_at_once(good: Path) -> None:
    """The drain would take an hour: its end within the deadline is the second signal's work."""

    async def answer_never(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with FakeWorker(answer_never) as worker:
        write(good, ANY_PORT + GOOD.replace("http://127.0.0.1:8101", worker.url))
        async with serving(good, GATEWAY_SERVER_DRAIN_S="3600") as (running, client):
            await ready(client)
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=PROMPT))
            async with asyncio.timeout(DEADLINE_S):
                await worker.received(1)
            running.process.send_signal(signal.SIGTERM)
            await running.told(r"(draining: 1 requests)")
            assert not asking.done()

            running.process.send_signal(signal.SIGTERM)

            answer = await asking
            assert await running.ended() == 0
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "draining"

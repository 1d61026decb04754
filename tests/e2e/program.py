"""How is the gateway run as a user runs it? As a process of its own, with a configuration file."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import KEY
from tests.e2e.observed import GUARD_S, POLL_S

DRAINING = re.compile(rb"draining: (\d+) requests")
SETTLING = re.compile(rb"not ready any more")
SERVING = re.compile(rb"serving on (http://[\d.:]+), metrics on (http://[\d.:]+)")


@dataclass
class Program:
    """A gateway that runs."""

    process: asyncio.subprocess.Process
    url: str  # known once it serves
    admin_url: str
    log: Path  # its standard output

    def client(self, **more: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=KEY, **({"max_retries": 0} | more))

    def http(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=GUARD_S, trust_env=False, verify=False
        )

    async def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            text = (await client.get(f"{self.admin_url}/metrics")).text
        families = text_string_to_metric_families(text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    async def reaches(self, value: float, name: str) -> None:
        """Wait until a metric has this value. Only polling shows it."""
        while await self.metric(name) != value:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def says(self, mark: re.Pattern[bytes]) -> re.Match[bytes]:
        """Wait until its standard error holds this in a line."""
        assert self.process.stderr is not None
        while not (said := mark.search(await self.process.stderr.readline())):
            assert not self.process.stderr.at_eof(), "it has ended"
        return said

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@asynccontextmanager
async def program(
    config: dict[str, Any], place: Path, guard_s: float = GUARD_S, up: int | None = None
) -> AsyncIterator[Program]:
    """Run `gateway serve` on any free ports. It has ended, by SIGTERM at the latest, when the block has.

    up: how many of its workers are waited for, if not for all.
    """
    (place / "gateway.toml").write_text(_toml(config))
    log = place / "gateway.log"
    argv = (sys.executable, "-m", "gateway", "serve", "--config", place / "gateway.toml")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(guard_s):
            running = Program(process, "", "", log)
            serving = await running.says(SERVING)
            running.url, running.admin_url = (address.decode() for address in serving.groups())
            await running.reaches(len(config["workers"]) if up is None else up, "gateway_worker_up")
            yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def _toml(config: dict[str, Any]) -> str:
    lines = []
    for name, content in config.items():
        for table in content if isinstance(content, list) else [content]:
            lines.append(f"[[{name}]]" if isinstance(content, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines)

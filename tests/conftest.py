"""A gateway on real sockets, in the test's own loop."""

import asyncio
import contextlib
import hashlib
import io
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvloop
from openai import AsyncOpenAI

from gateway.app import Gateway
from gateway.configuration import parse
from gateway.journal import Journal
from gateway.server import listen, running
from tests.fakes import FakeWorker
from tests.redis_server import RedisServer

KEY = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"
MODEL = "smollm2"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}  # as in production


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def configuration(*workers: FakeWorker, **sections: Any) -> dict[str, Any]:
    """A whole configuration: one model, one unlimited tenant with one key. Keyword arguments replace or, if
    tables, add to its sections."""
    config: dict[str, Any] = {
        "server": {"port": 0, "admin_port": 0, "drain_s": 1, "settle_s": 0},
        "fleet": {"probe_interval_s": 0.05},
        "models": [
            {"name": MODEL, "aliases": ["gpt-4o-mini"], "max_model_len": 2048, "default_max_tokens": 256}
        ],
        "workers": [
            {"id": f"w{index}", "url": worker.url, "model": MODEL, "max_concurrency": 16}
            for index, worker in enumerate(workers)
        ],
        "tenants": [{"id": "acme"}],
        "keys": [{"id": "acme-1", "tenant": "acme", "sha256": sha256(KEY)}],
    }
    for name, content in sections.items():
        config[name] = config.get(name, {}) | content if isinstance(content, dict) else content
    return config


@dataclass
class Served:
    """A running gateway."""

    gateway: Gateway
    url: str
    admin_url: str
    log: io.BytesIO

    def client(self, key: str = KEY, **more: Any) -> AsyncOpenAI:
        """The official SDK, without retries unless asked for."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, **({"max_retries": 0} | more))

    def http(self, key: str | None = KEY) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    async def metrics(self) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"{self.admin_url}/metrics")).text

    def log_lines(self) -> list[dict[str, Any]]:
        """The log of requests so far."""
        self.gateway.flush()
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        async with asyncio.timeout(10):
            await self.gateway.under_way.empty()


@asynccontextmanager
async def served(config: dict[str, Any], *, wait_ready: bool = True) -> AsyncIterator[Served]:
    """Serve a configuration (see above) and wait until it is ready."""
    log = io.BytesIO()
    settings = parse(config, {})
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(listen("port", "127.0.0.1", 0))
        admin = stack.enter_context(listen("admin_port", "127.0.0.1", 0))
        gateway = Gateway(settings, Journal(log))
        async with gateway, running(gateway.on(public, admin), settings.server, callers=gateway.callers):
            result = Served(gateway, _url(public), _url(admin), log)
            if wait_ready:
                await _ready(result)
            yield result


def _url(listener: Any) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def _ready(gateway: Served) -> None:
    async with asyncio.timeout(10), gateway.http(None) as client:
        while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - the gateway tells nobody
            await asyncio.sleep(0.01)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """One Redis for all tests that do it no harm."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(shared_redis: RedisServer) -> str:
    """A Redis without keys."""
    with socket.create_connection(("127.0.0.1", shared_redis.port)) as connection:
        connection.sendall(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
        received = b""
        while received.count(b"\r\n") < 2:
            received += connection.recv(64)
    assert received == b"+OK\r\n+OK\r\n"
    return shared_redis.url

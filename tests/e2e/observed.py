"""When requests have ended: is all that they took given back, and is each counted once, as what it was?"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway import backing
from gateway.model import Tenant
from gateway.stores.memory import MemoryStore
from tests.conftest import KEY, MODEL, Served, configuration, served
from tests.fakes import FakeWorker

GUARD_S = 30.0  # who waits longer than that for an event waits for one that will never come
POLL_S = 0.01
REQUESTS = 1000  # a minute
TOKENS = 100_000
TENANT = {"id": "acme", "requests_per_minute": REQUESTS, "tokens_per_minute": TOKENS}
NOWHERE = "http://127.0.0.1:9"  # the URL of a worker that is never up
STEADY_PROBES = {"probe_interval_s": 60}  # one probe at the start, so that requests meet a dead worker first


class Clock:
    """The clock by which limits refill. It stands still unless a test moves it, so charges are exact."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Observed(Served):
    """A gateway whose only tenant is TENANT, unless the test says otherwise."""

    store: MemoryStore
    clock: Clock
    admin: httpx.AsyncClient

    def http(self, key: str | None = KEY) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return _client(self.url, headers)

    async def metrics(self) -> str:
        return (await self.admin.get("/metrics")).text

    async def families(self) -> dict[str, Metric]:
        """All metrics, by name."""
        return {family.name: family for family in text_string_to_metric_families(await self.metrics())}

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        families = (await self.families()).values()
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    async def reaches(self, value: float, name: str, **labels: str) -> None:
        """Wait until a metric has this value. Only polling shows it."""
        while await self.metric(name, **labels) != value:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def charged(self) -> tuple[int, int]:
        """Requests and tokens that the tenant has been charged, as the headers of an answer tell."""
        async with self.http() as client:
            headers = (await client.post("/v1/completions", json={})).headers
        remaining = [int(headers[f"x-ratelimit-remaining-{kind}"]) for kind in ("requests", "tokens")]
        return REQUESTS - remaining[0], TOKENS - remaining[1]

    async def idle_lines(self) -> list[dict[str, Any]]:
        """The log of requests, once nothing is under way."""
        await self.idle()
        return self.log_lines()

    async def ended(self, *outcomes: str, requests: int, tokens: int) -> list[dict[str, Any]]:
        """All requests so far have ended, in these ways, and nothing of them is left. Returns their log.

        requests, tokens: what the tenant has been charged for all of them. To be asked once.
        """
        await self.reaches(len(outcomes), "gateway_requests_total")
        lines = await self.idle_lines()
        assert Counter(line["outcome"] for line in lines) == Counter(outcomes)
        families = await self.families()
        counted = families["gateway_requests"].samples
        ends = {
            outcome: sum(s.value for s in counted if s.labels["outcome"] == outcome) for outcome in outcomes
        }
        assert ends == Counter(outcomes)
        assert sum(s.value for s in counted if s.name == "gateway_requests_total") == len(outcomes)
        assert {s.value for s in families["gateway_in_flight"].samples} == {0}
        assert {s.value for s in families["gateway_queue_depth"].samples} == {0}
        assert self.store.leases(Tenant("acme")) == 0
        assert await self.charged() == (requests, tokens)
        return lines


@asynccontextmanager
async def observed(*workers: FakeWorker, **sections: Any) -> AsyncIterator[Observed]:
    """Serve these workers, once all are up. Keyword arguments as for `configuration`."""
    clock = Clock()
    store = MemoryStore(clock)
    config = configuration(*workers, **{"tenants": [TENANT], **sections})
    async with asyncio.timeout(GUARD_S):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backing, "MemoryStore", lambda: store)
            patch.setenv("SSL_CERT_FILE", os.devnull)  # reading the system's certificates takes 80 ms
            async with served(config, wait_ready=False) as plain, _client(plain.admin_url) as admin:
                gateway = Observed(plain.gateway, plain.url, plain.admin_url, plain.log, store, clock, admin)
                patch.undo()
                await gateway.reaches(len(workers), "gateway_worker_up")
                with failing_late() as failure:
                    yield gateway
    if failure:
        raise failure[0]


@contextmanager
def failing_late() -> Iterator[list[BaseException]]:
    """Keep a test's failure until its servers have ended in good order, as it would not let them."""
    failure: list[BaseException] = []
    try:
        yield failure
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        failure.append(error)


def limited(*workers: FakeWorker, max_concurrency: int = 1) -> list[dict[str, Any]]:
    """The configuration of workers that take so many requests at once."""
    return [
        {"id": f"w{index}", "url": worker.url, "model": MODEL, "max_concurrency": max_concurrency}
        for index, worker in enumerate(workers)
    ]


def _client(url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=GUARD_S,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
        verify=False,  # likewise
    )

"""Is memory only told of what really idles, and really waits?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from benchmarks.footprint import memory
from benchmarks.footprint.connections import IdleConnection
from benchmarks.footprint.rig import Rig
from benchmarks.footprint.streams import RequestFailed
from benchmarks.footprint.worker import TOKEN
from tests.fakes import FakeWorker, Received, Reply, plain_answer


@dataclass(frozen=True, slots=True)
class Scripted(Rig):
    """Grows by 6 KB from one look to the next, and has metrics that are told to it."""

    metrics: dict[str, float] = field(default_factory=dict)
    looks: list[int] = field(default_factory=list)

    def rss_bytes(self) -> int:
        self.looks.append(6000 * len(self.looks))
        return self.looks[-1]

    async def reaches(self, metric: str, value: float, limit_s: float) -> float:
        return self.metrics.get(metric, value)


def scripted(url: str, **metrics: float) -> Scripted:
    return Scripted(None, url, "", "sk-test", metrics)  # type: ignore[arg-type]  # there is no process


async def stream_one_token(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event({"choices": [{"index": 0, "delta": {"content": TOKEN}}]})
    await reply.peer_closed()


async def test_growth_is_told_for_one_of_them() -> None:
    async with FakeWorker(plain_answer) as gateway:
        [idle] = await memory.connections(scripted(gateway.url), 3)
    async with FakeWorker(stream_one_token) as gateway:
        first, again = await memory.streams(scripted(gateway.url), 2)
        [waiting] = await memory.waiting(scripted(gateway.url), 4, 400, 24)

    assert [idle.value, first.value, again.value, waiting.value] == [2.0, 3.0, 3.0, 1.5]
    assert waiting.name == "waiting request of 0.4 KB, 4 of them"


async def test_waiting_requests_have_bodies_of_the_size_asked_for() -> None:
    async with FakeWorker(stream_one_token) as gateway:
        await memory.waiting(scripted(gateway.url), 2, 100_000, 130)
        await gateway.received(3)

    assert sorted(len(request.body) for request in gateway.requests)[1:] == [100_000, 100_000]


async def test_connections_that_the_gateway_has_closed_are_no_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def one_is_lost(count: int, *_: object) -> AsyncIterator[list[IdleConnection]]:
        connections = [IdleConnection(b"") for _ in range(count)]
        connections[0].close()
        yield connections

    monkeypatch.setattr(memory, "idle_connections", one_is_lost)

    with pytest.raises(RequestFailed, match="1 of 2 connections were closed by the gateway"):
        await memory.connections(scripted(""), 2)


async def test_requests_that_do_not_all_wait_are_told() -> None:
    async with FakeWorker(stream_one_token) as gateway:
        with pytest.raises(RequestFailed, match="2 of 3 requests wait in the queue"):
            await memory.waiting(scripted(gateway.url, gateway_queue_depth=2), 3, 400, 24)

"""Results, and workers in this process, as tests want them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import uvloop

from benchmarks.overhead.requests import MODEL
from benchmarks.overhead.results import Result
from benchmarks.overhead.worker import Connection, Counts, Engine

GUARD_S = 30.0


def result(contender: str, number: int = 1, problem: str | None = None, **phases: dict[str, float]) -> Result:
    """Of one round."""
    return Result(number, contender, phases, problem)


@dataclass(frozen=True, slots=True)
class Serving:
    """A worker on a thread of its own, for callers that block."""

    url: str
    engine: Engine

    def counts(self) -> Counts:
        """As it tells them."""
        return Counts(**httpx.get(f"{self.url}/stats", trust_env=False).json())


@contextmanager
def serving(interval_s: float = 0.0) -> Iterator[Serving]:
    """It ends with the block."""
    engine = Engine(MODEL)
    engine.interval_s = interval_s
    with serving_by(lambda: Connection(engine)) as url:
        yield Serving(url, engine)


@contextmanager
def serving_by(protocol: type[asyncio.Protocol] | object) -> Iterator[str]:
    """The URL of whoever answers each connection with a protocol of its own."""
    started = threading.Event()
    told: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = []

    async def serve() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        server = await loop.create_server(protocol, "127.0.0.1", 0)  # type: ignore[arg-type]
        told.append((loop, ended, server.sockets[0].getsockname()[1]))
        started.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    assert started.wait(GUARD_S)
    [(loop, ended, port)] = told
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(GUARD_S)

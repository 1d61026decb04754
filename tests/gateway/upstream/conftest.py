"""Which loops and clients do the tests of the worker client use?"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import trustme
import uvloop

from gateway.upstream import Timeouts, WorkerClient

PATIENT = Timeouts(connect_s=5, first_byte_s=60, gap_s=60)


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest_asyncio.fixture
async def client_for() -> AsyncIterator[Callable[..., WorkerClient]]:
    """Makes clients, closes them at the end, and sees to it that none has anything left in use."""
    clients: list[WorkerClient] = []

    def make(url: str, **settings: Any) -> WorkerClient:
        clients.append(WorkerClient(url, **{"timeouts": PATIENT, "idle_s": 60, "max_age_s": 600, **settings}))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()
    assert [(client.busy, client.idle) for client in clients] == [(0, 0)] * len(clients)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def full_backlog() -> Iterator[str]:
    """The URL of a listener that accepts nobody, so that no further connection comes about."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for filler in fillers:
            filler.close()

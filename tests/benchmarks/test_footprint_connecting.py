"""Are thousands of connections opened without running out of ports or places?"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from benchmarks.footprint import connecting
from benchmarks.footprint.connecting import address, connect_all


class Caller(asyncio.Protocol):
    """Knows from where it calls."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.host = transport.get_extra_info("sockname")[0]


@asynccontextmanager
async def listener() -> AsyncIterator[str]:
    """Its URL."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_every_caller_has_a_connection_and_no_address_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "PER_ADDRESS", 3)
    monkeypatch.setattr(connecting, "AT_ONCE", 2)
    callers = [Caller() for _ in range(8)]

    async with listener() as url:
        await connect_all(callers, url)
        for caller in callers:
            caller.transport.abort()

    assert Counter(caller.host for caller in callers) == {"127.0.0.1": 3, "127.0.0.2": 3, "127.0.0.3": 2}


async def test_a_server_that_is_not_there_is_told() -> None:
    async with listener() as url:
        pass

    with pytest.raises(ConnectionRefusedError):
        await connect_all([Caller(), Caller()], url)


def test_an_address_is_that_of_the_url() -> None:
    assert address("http://127.0.0.1:8080/v1") == ("127.0.0.1", 8080)
    assert address("http://gateway") == ("gateway", 80)

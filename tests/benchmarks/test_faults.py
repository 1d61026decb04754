"""Does each fault of the proxy befall whom it is meant for, and nobody else?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.faults import Ending, FaultProxy

GUARD_S = 30.0


class Talker:
    """One side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def reads(self, count: int) -> list[bytes]:
        """What so many reads give; b"" at the end."""
        return [await self.reader.read(1000) for _ in range(count)]


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[FaultProxy, asyncio.Queue[Talker]]]:
    """A proxy, and the target's side of each connection that comes through it."""
    arrived: asyncio.Queue[Talker] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: arrived.put_nowait(Talker(*ends)), "127.0.0.1", 0)
    try:
        async with asyncio.timeout(GUARD_S), FaultProxy(server.sockets[0].getsockname()[1]) as proxy:
            yield proxy, arrived
    finally:
        server.close()
        while not arrived.empty():
            arrived.get_nowait().writer.close()


@asynccontextmanager
async def calling(proxy: FaultProxy) -> AsyncIterator[Talker]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Talker(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def talking() -> AsyncIterator[tuple[FaultProxy, Talker, Talker]]:
    """One connection through a proxy, by its two sides: the caller's, and the target's."""
    async with proxied() as (proxy, arrived), calling(proxy) as caller:
        target = await arrived.get()
        try:
            yield proxy, caller, target
        finally:
            target.writer.close()


async def stands_still(writer: asyncio.StreamWriter) -> None:
    """Wait until nothing more of what it has is taken."""
    before = -1
    while before != (before := writer.transport.get_write_buffer_size()):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)


async def test_a_stall_of_one_way_leaves_the_other_alone() -> None:
    async with talking() as (proxy, caller, target):
        proxy.down.stall()
        target.writer.write(b"kept back")
        await proxy.holding.wait()
        caller.writer.write(b"goes on")
        assert await target.reader.readexactly(7) == b"goes on"
        proxy.resume()
        assert await caller.reader.readexactly(9) == b"kept back"


async def test_latency_of_one_way_delays_that_way() -> None:
    loop = asyncio.get_running_loop()
    async with talking() as (proxy, caller, target):
        proxy.down.latency_s = 0.1
        began = loop.time()
        target.writer.write(b"late")
        assert await caller.reader.readexactly(4) == b"late"
        assert loop.time() - began > 0.09  # at least: no machine is too slow for that


async def test_a_drip_lets_bytes_through_one_by_one() -> None:
    async with talking() as (proxy, caller, target):
        proxy.down.drip_s = 0.02
        target.writer.write(b"drop")
        assert await caller.reads(4) == [b"d", b"r", b"o", b"p"]
        caller.writer.write(b"whole")
        assert await target.reads(1) == [b"whole"]


async def test_a_cut_falls_after_so_many_bytes_and_ends_both_sides() -> None:
    async with talking() as (proxy, caller, target):
        proxy.down.cut_after(5, Ending.FIN)
        target.writer.write(b"4\r\n")
        target.writer.write(b"data\r\n")
        assert await caller.reader.read() == b"4\r\nda"
        assert await target.reader.read() == b""


async def test_a_cut_by_reset_is_seen_as_one_on_both_sides() -> None:
    async with talking() as (proxy, caller, target):
        proxy.up.cut_after(2, Ending.RESET)
        caller.writer.write(b"lost")
        for side in (caller, target):
            with pytest.raises(ConnectionResetError):
                await side.reader.readexactly(4)


async def test_a_cut_falls_once_and_on_one_connection() -> None:
    async with proxied() as (proxy, arrived), calling(proxy) as one, calling(proxy) as other:
        first, second = await arrived.get(), await arrived.get()
        proxy.up.cut_after(0, Ending.FIN)
        one.writer.write(b"cut")
        assert await one.reader.read() == b""
        other.writer.write(b"whole")
        both = await asyncio.gather(first.reader.read(5), second.reader.read(5))
        assert sorted(both) == [b"", b"whole"]
        first.writer.close()
        second.writer.close()


async def test_a_half_closed_connection_goes_on_the_other_way() -> None:
    async with talking() as (proxy, caller, target):
        proxy.half_close(proxy.up)
        assert await target.reader.read() == b""
        caller.writer.write(b"dropped")
        target.writer.write(b"still here")
        assert await caller.reader.readexactly(10) == b"still here"
        proxy.half_close(proxy.up)  # a second time changes nothing
        target.writer.close()
        assert await caller.reader.read() == b""


async def test_a_mute_proxy_takes_connections_and_answers_none_of_them() -> None:
    async with proxied() as (proxy, arrived):
        proxy.is_mute = True
        async with calling(proxy) as caller:
            caller.writer.write(b"hello?")
            await caller.writer.drain()
            proxy.is_mute = False
            async with calling(proxy) as other:
                other.writer.write(b"hello")
                target = await arrived.get()
                assert await target.reader.readexactly(5) == b"hello"
                target.writer.close()
                assert await other.reader.read() == b""
            assert arrived.empty()
            await proxy.reset()
            with pytest.raises(ConnectionResetError):
                await caller.reader.readexactly(1)


async def test_who_sends_more_than_the_proxy_holds_has_to_wait() -> None:
    async with talking() as (proxy, _, target):
        proxy.down.stall()
        target.writer.transport.set_write_buffer_limits(high=0)
        target.writer.write(bytes(64 * 1024 * 1024))
        draining = asyncio.create_task(target.writer.drain())
        await proxy.holding.wait()
        assert not draining.done()
        await proxy.reset()
        with pytest.raises(ConnectionError):
            await draining


async def test_a_connection_that_is_ending_and_is_not_read_can_be_reset() -> None:
    async with talking() as (proxy, caller, target):
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        target.writer.transport.set_write_buffer_limits(high=0)
        target.writer.write(bytes(64 * 1024 * 1024))  # more than goes into the sockets' buffers
        await stands_still(target.writer)
        caller.writer.write_eof()
        with pytest.raises(ConnectionResetError):  # it was closed with bytes unread
            await target.reader.read()
        # From now on the proxy waits for its last bytes to be taken.
        assert proxy.connections == 1
        await proxy.reset()
        assert proxy.connections == 0

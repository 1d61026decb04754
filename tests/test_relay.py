"""Does the relay do what tests of faults rely on?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import redis.asyncio

from tests.ports import free_ports
from tests.relay import Relay


class Echo:
    """Answers each line with itself, and ends after "bye"; keeps what it has got."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.heard = asyncio.Event()  # set with each line
        self.ended_with: list[type[Exception] | None] = []  # of each connection; None: its end, without error

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        error = None
        try:
            while line := await reader.readline():
                self.got.append(line)
                self.heard.set()
                writer.write(line)
                if line == b"bye\n":
                    break
                await writer.drain()
        except ConnectionResetError as problem:
            error = type(problem)
        self.ended_with.append(error)
        writer.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Relay, Echo]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(30), Relay(server.sockets[0].getsockname()[1]) as relay:
            yield relay, echo
    finally:
        server.close()


class Caller:
    """A connection through the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line)
        return await self.reader.readline()


@asynccontextmanager
async def calling(relay: Relay) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - nobody tells of it; the caller has a time limit
        await asyncio.sleep(0.001)


async def test_bytes_go_both_ways_in_order_however_many() -> None:
    lines = [b"%d" % number * 100 + b"\n" for number in range(5000)]
    async with relayed() as (relay, echo), calling(relay) as caller:
        caller.writer.writelines(lines)
        assert [await caller.reader.readline() for _ in lines] == lines
    assert echo.got == lines


async def test_redis_works_behind_it(redis_url: str) -> None:
    async with Relay(int(redis_url.rpartition(":")[2].removesuffix("/0"))) as relay:
        async with redis.asyncio.Redis.from_url(relay.url) as client:
            await client.set("a", "1")
            assert await client.get("a") == b"1"
        await until(lambda: relay.connections == 0)


async def test_half_the_latency_passes_on_the_way_there_and_half_on_the_way_back_until_it_is_changed() -> (
    None
):
    loop = asyncio.get_running_loop()
    async with relayed() as (relay, echo), calling(relay) as caller:
        relay.latency_ms = 200
        began = loop.time()
        asking = asyncio.create_task(caller.ask(b"slow\n"))
        await echo.heard.wait()
        heard = loop.time()
        assert await asking == b"slow\n"
        assert heard - began > 0.09  # at least: no machine is too slow for that, and timers are hardly early
        assert loop.time() - heard > 0.09
        relay.latency_ms = 0
        assert await caller.ask(b"fast\n") == b"fast\n"


async def test_a_stall_keeps_both_ways_back_until_it_is_over() -> None:
    async with relayed() as (relay, echo), calling(relay) as caller:
        assert await caller.ask(b"before\n") == b"before\n"
        relay.stall()
        asking = asyncio.create_task(caller.ask(b"during\n"))
        await relay.holding.wait()
        assert echo.got == [b"before\n"]
        assert relay.connections == 1
        relay.resume()
        assert not relay.holding.is_set()
        assert await asking == b"during\n"


async def test_a_stall_that_follows_a_resume_at_once_holds() -> None:
    async with relayed() as (relay, echo), calling(relay) as caller:
        relay.stall()
        asking = asyncio.create_task(caller.ask(b"during\n"))
        await relay.holding.wait()
        relay.resume()
        relay.stall()
        await relay.holding.wait()
        assert not echo.got
        relay.resume()
        assert await asking == b"during\n"


async def test_a_stall_of_answers_lets_commands_take_effect() -> None:
    async with relayed() as (relay, echo), calling(relay) as caller:
        relay.stall_answers()
        asking = asyncio.create_task(caller.ask(b"done\n"))
        await relay.holding.wait()
        assert echo.got == [b"done\n"]
        assert not asking.done()
        relay.resume()
        assert await asking == b"done\n"


async def test_connections_are_taken_during_a_stall() -> None:
    async with relayed() as (relay, _):
        relay.stall()
        async with calling(relay) as caller:
            asking = asyncio.create_task(caller.ask(b"during\n"))
            await relay.holding.wait()
            relay.resume()
            assert await asking == b"during\n"


async def test_what_a_caller_sent_before_it_left_goes_on_and_then_its_end() -> None:
    async with relayed() as (relay, echo):
        relay.stall()
        async with calling(relay) as caller:
            caller.writer.write(b"last words\n")
            await relay.holding.wait()
        relay.resume()
        await until(lambda: bool(echo.ended_with))
        assert (echo.got, echo.ended_with) == ([b"last words\n"], [None])
        await until(lambda: relay.connections == 0)


async def test_the_end_of_the_target_reaches_the_caller_after_its_last_answer() -> None:
    async with relayed() as (relay, _), calling(relay) as caller:
        assert await caller.ask(b"bye\n") == b"bye\n"
        assert await caller.reader.read() == b""


@pytest.mark.parametrize("stalled", [False, True])
async def test_a_cut_resets_both_sides_and_loses_what_was_held(stalled: bool) -> None:
    async with relayed() as (relay, echo), calling(relay) as caller, calling(relay) as other:
        assert await caller.ask(b"one\n") == b"one\n"
        assert await other.ask(b"two\n") == b"two\n"
        if stalled:
            relay.stall()
            caller.writer.write(b"lost\n")
            await relay.holding.wait()
        await relay.cut()
        relay.resume()
        assert relay.connections == 0
        for broken in (caller, other):
            with pytest.raises(ConnectionResetError):
                await broken.reader.readline()
        await until(lambda: len(echo.ended_with) == 2)
        assert echo.ended_with == [ConnectionResetError] * 2
        async with calling(relay) as again:
            assert await again.ask(b"three\n") == b"three\n"
        assert echo.got == [b"one\n", b"two\n", b"three\n"]


async def test_a_connection_that_was_only_just_taken_can_be_cut() -> None:
    async with relayed() as (relay, _), calling(relay) as caller:
        await until(lambda: relay.connections == 1)
        await relay.cut()
        with pytest.raises(ConnectionResetError):
            await caller.reader.readline()


async def test_while_it_refuses_open_connections_go_on_and_new_ones_fail_and_then_the_port_is_the_same() -> (
    None
):
    async with relayed() as (relay, _), calling(relay) as caller:
        assert await caller.ask(b"before\n") == b"before\n"
        port = relay.port
        relay.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await caller.ask(b"still\n") == b"still\n"
        await relay.admit()
        assert relay.port == port
        async with calling(relay) as other:
            assert await other.ask(b"after\n") == b"after\n"


async def test_where_nobody_listens_behind_it_connections_are_reset() -> None:
    async with asyncio.timeout(30), Relay(free_ports(1)[0]) as relay, calling(relay) as caller:
        with pytest.raises(ConnectionResetError):
            await caller.reader.readline()

"""Does one connection say what is asked, hand over what is answered, and tell when it is lost?"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import hiredis
import pytest

from gateway import settings
from gateway.stores.redis.target import Target
from gateway.stores.redis.wire import Wire, WireError

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NAMED = b"+OK\r\n"  # the answer to the first command of all, CLIENT SETNAME


@asynccontextmanager
async def saying(script: Script) -> AsyncIterator[Target]:
    """A server that follows the script on each connection."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.close()

    async with asyncio.timeout(10), await asyncio.start_server(served, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Target(settings.Store(url=f"redis://127.0.0.1:{port}/0"))


async def closed(wire: Wire) -> None:
    wire.close()
    await wire.wait_closed()


async def test_what_is_asked_is_answered_in_order(redis_url: str) -> None:
    wire = await Wire.open(Target(settings.Store(url=redis_url)), "test")
    answers: list[object] = []
    for number in range(3):
        wire.send(("ECHO", number), answers.append)
    assert await wire.ask("ECHO", b"\x00\xff") == b"\x00\xff"
    assert answers == [b"0", b"1", b"2"]
    assert isinstance(await wire.ask("NO SUCH COMMAND"), hiredis.ReplyError)
    assert await wire.ask("CLIENT", "GETNAME") == b"test"
    await closed(wire)


async def test_an_answer_in_pieces_is_one_answer() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (b"+O", b"K\r\n", b"$5\r\nhel", b"lo\r\n"):
            if piece in (b"+O", b"$5\r\nhel"):
                await reader.readuntil(b"test\r\n" if piece == b"+O" else b"PING\r\n")
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with saying(script) as target:
        wire = await Wire.open(target, "test")
        assert await wire.ask("PING") == b"hello"
        await closed(wire)


async def test_who_waits_hears_that_the_connection_is_lost() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(NAMED)
        await reader.readuntil(b"PING\r\n")

    async with saying(script) as target:
        wire = await Wire.open(target, "test")
        with pytest.raises(WireError, match="closed the connection"):
            await wire.ask("PING")
        with pytest.raises(WireError, match="connection lost"):
            await wire.ask("PING")


async def test_a_connection_that_is_lost_while_idle_is_told_once() -> None:
    told: list[str] = []
    lost, leave = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(NAMED)
        await leave.wait()

    def on_lost(reason: str) -> None:
        told.append(reason)
        lost.set()

    async with saying(script) as target:
        wire = await Wire.open(target, "test")
        wire.on_lost = on_lost
        leave.set()
        await lost.wait()
        await wire.wait_closed()
        wire.close()
        assert told == ["Redis closed the connection"]


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", NAMED * 2])
async def test_what_nobody_asked_for_ends_the_connection(words: bytes) -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    speak = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(NAMED)
        await speak.wait()
        writer.write(words)
        await reader.read()

    async with saying(script) as target:
        wire = await Wire.open(target, "test")
        wire.on_lost = told.set_result
        speak.set()
        assert "no answer of Redis" in await told
        await wire.wait_closed()


async def test_a_refused_login_leaves_no_connection() -> None:
    ended = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-NOAUTH Authentication required.\r\n")
        await reader.read()
        ended.set()

    async with saying(script) as target:
        with pytest.raises(WireError, match="CLIENT: NOAUTH"):
            await Wire.open(target, "test")
        await ended.wait()


async def test_nobody_there_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match=r"refused|Connect"):
        await Wire.open(Target(settings.Store(url="redis://127.0.0.1:9/0")), "test")

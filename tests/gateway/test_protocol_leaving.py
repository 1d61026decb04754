"""Is it noticed that a caller has left, whenever it leaves and whichever lane its request took?"""

import asyncio

import pytest

from gateway.exchange import ClientGone, Exchange, Line
from tests.gateway.lanes import BIG, LIMIT, echo, house, on_both_lanes, post, waiting

pytestmark = on_both_lanes


async def test_a_caller_who_hangs_up_is_noticed_while_it_uploads(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"{", length=100))
        await at.began()
        visitor.hang_up()
        assert await at.endings.get() is ClientGone


@pytest.mark.parametrize("size", [2, BIG])
async def test_a_caller_who_hangs_up_is_noticed_while_nothing_is_sent(lane: str, size: int) -> None:
    is_watched = asyncio.Event()

    async def wait(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        is_watched.set()
        await asyncio.Event().wait()

    async with house(lane, wait) as at:
        visitor = await at.visit()
        visitor.say(post(b"x" * size))
        await is_watched.wait()
        visitor.hang_up()
        assert await at.endings.get() is asyncio.CancelledError
        assert at.exchanges[0].gone == "client_gone"


async def test_a_caller_who_hangs_up_before_it_was_asked_is_noticed_too(lane: str) -> None:
    may_read = asyncio.Event()

    async def late(exchange: Exchange, line: Line) -> None:
        await may_read.wait()
        await waiting(exchange, line)

    async with house(lane, late) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        [protocol] = at.protocols
        visitor.hang_up()
        while not protocol.transport.is_closing():  # noqa: ASYNC110 - nobody is told yet
            await asyncio.sleep(0)
        may_read.set()
        assert await at.endings.get() in (asyncio.CancelledError, ClientGone)


async def test_who_is_watched_too_late_has_already_left_and_is_told_nothing(lane: str) -> None:
    left: list[str] = []

    async def late(exchange: Exchange, line: Line) -> None:
        assert await line.body(LIMIT) == b"{}"
        [protocol] = at.protocols
        while protocol in protocol.connections:  # noqa: ASYNC110 - nobody is told yet
            await asyncio.sleep(0)
        line.watch(lambda: left.append("left"))
        await exchange.reply(200, [], b"{}")

    async with house(lane, late) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        visitor.hang_up()
        assert await at.endings.get() is None
        assert left == ["left"]


async def test_a_caller_who_hangs_up_in_mid_stream_is_noticed(lane: str) -> None:
    async def stream(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [], None)
        await exchange.send(b"part")
        await asyncio.Event().wait()

    async with house(lane, stream) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.reader.readuntil(b"part\r\n")
        visitor.hang_up()
        assert await at.endings.get() is asyncio.CancelledError
        assert at.exchanges[0].gone == "client_gone"


async def test_an_aborted_connection_ends_at_once(lane: str) -> None:
    async def abort(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        line.abort()

    async with house(lane, abort) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert await visitor.is_closed()


async def test_what_is_said_after_an_abort_goes_nowhere(lane: str) -> None:
    async def abort(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [], None)
        line.abort()
        await exchange.send(b"never told")
        await exchange.finish(b"never told")

    async with house(lane, abort) as at:
        visitor = await at.visit()
        visitor.say(post())
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await visitor.reader.readuntil(b"told")
        await at.endings.get()

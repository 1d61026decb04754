"""Do connections end before their process does, each after an answer that says so, or idle?"""

import asyncio
import socket

import pytest

from gateway import settings
from gateway.accepting import Loads, Place
from gateway.callers import Callers
from gateway.exchange import Exchange, Line
from gateway.server import listen, running
from tests.gateway.lanes import House, Visitor, echo, house, on_both_lanes, post

NEVER_S = 3600.0

pytestmark = on_both_lanes


async def answered(at: House) -> Visitor:
    """Somebody who was answered, and may ask again."""
    visitor = await at.visit()
    visitor.say(post())
    assert "connection" not in (await visitor.hear()).headers
    return visitor


class Gate:
    """Serves in two parts; each waits for a word of the test."""

    def __init__(self) -> None:
        self.head, self.rest = asyncio.Event(), asyncio.Event()

    async def __call__(self, exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await self.head.wait()
        await exchange.start(200, [], None)
        await exchange.send(b"part")
        await self.rest.wait()
        await exchange.finish(b"end")


# The last answer


async def test_an_answer_that_has_not_begun_is_the_last_and_says_so(lane: str) -> None:
    gate = Gate()
    gate.rest.set()
    async with house(lane, gate) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        at.callers.part()
        gate.head.set()
        answer = await visitor.hear()
        assert (answer.headers["connection"], answer.body) == ("close", b"partend")
        assert await visitor.is_closed()


async def test_one_that_has_begun_ends_well_and_the_next_is_the_last(lane: str) -> None:
    gate = Gate()
    gate.head.set()
    async with house(lane, gate) as at:
        visitor = await at.visit()
        visitor.say(post())
        head = await visitor.hear_head()
        at.callers.part()
        gate.rest.set()
        assert "connection" not in head.headers
        await visitor.reader.readuntil(b"0\r\n\r\n")
        visitor.say(post())
        assert (await visitor.hear()).headers["connection"] == "close"
        assert await visitor.is_closed()


async def test_who_comes_later_is_answered_once(lane: str) -> None:
    async with house(lane, echo) as at:
        at.callers.part()
        visitor = await at.visit()
        visitor.say(post(b"[1]"))
        answer = await visitor.hear()
        assert (answer.headers["connection"], answer.body) == ("close", b"[1]")
        assert await visitor.is_closed()


async def test_who_waits_to_be_told_to_go_on_is_answered_once_too(lane: str) -> None:
    async with house(lane, echo) as at:
        at.callers.part()
        visitor = await at.visit()
        visitor.say(post(b"", b"expect: 100-continue", length=2))
        assert await visitor.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        visitor.say(b"{}")
        assert (await visitor.hear()).headers["connection"] == "close"
        assert await visitor.is_closed()


# Who is idle


async def test_who_is_idle_is_sent_away_and_then_nobody_is_left(lane: str) -> None:
    async with house(lane, echo) as at:
        visitors = [await answered(at) for _ in range(3)]
        assert len(at.callers) == 3
        await at.callers.go(idle_s=0.0)
        assert len(at.callers) == 0
        for visitor in visitors:
            assert await visitor.is_closed()


async def test_who_was_answered_just_now_may_ask_again(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await answered(at)
        at.callers.part()
        going = asyncio.create_task(at.callers.go(NEVER_S))
        await asyncio.sleep(0)
        visitor.say(post())
        assert (await visitor.hear()).headers["connection"] == "close"
        await going


async def test_who_has_asked_nothing_yet_is_waited_for(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        while len(at.callers) == 0:  # noqa: ASYNC110 - it is accepted, and nobody is told
            await asyncio.sleep(0)
        at.callers.part()
        going = asyncio.create_task(at.callers.go(idle_s=0.0))
        await asyncio.sleep(0)
        visitor.say(post())
        assert (await visitor.hear()).status == 200
        await going


@pytest.mark.parametrize("part", [b"POST /x HT", post(b"{", length=2)], ids=["head", "body"])
async def test_nobody_is_sent_away_in_the_middle_of_a_request(lane: str, part: bytes) -> None:
    async with house(lane, echo) as at:
        visitor = await answered(at)
        [protocol] = at.protocols
        visitor.say(part)
        while not (protocol._in_head or protocol._in_body):  # noqa: ASYNC110
            await asyncio.sleep(0)
        protocol.close_idle(at_any_time())
        visitor.say(post().removeprefix(part) if part.startswith(b"POST /x HT") else b"}")
        assert (await visitor.hear()).status == 200


async def test_nobody_is_sent_away_whose_next_request_is_on_the_socket_already(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await answered(at)
        [protocol] = at.protocols
        own = visitor.writer.get_extra_info("socket")
        with socket.fromfd(own.fileno(), own.family, own.type) as plug:
            plug.send(post(b"[2]"))  # past the loop, which has not read it
        protocol.close_idle(at_any_time())
        assert (await visitor.hear()).body == b"[2]"
        protocol.close_idle(at_any_time())
        assert await visitor.is_closed()
        protocol.close_idle(at_any_time())  # another time, while it ends


def at_any_time() -> float:
    return asyncio.get_running_loop().time()


# Among siblings


async def test_what_waits_at_the_socket_is_left_to_siblings(lane: str) -> None:
    async with house(lane, echo) as at:
        callers = Callers()
        with listen("port", "127.0.0.1", 0) as listener:
            ours, theirs = listener, listener.dup()
            address = listener.getsockname()
            loads = Loads(2)
            async with running([(at, ours)], settings.Server(), Place(loads, 0), callers):
                while not loads.accepts(0):  # noqa: ASYNC110 - it begins to accept
                    await asyncio.sleep(0)
                callers.leave()
                assert not loads.accepts(0)
                reader, writer = await asyncio.open_connection(*address)
                writer.write(post(b"[3]"))
                async with running([(at, theirs)], settings.Server(), Place(loads, 1)):
                    assert (await Visitor(reader, writer).hear()).body == b"[3]"
                    writer.close()
                    await writer.wait_closed()
        assert len(callers) == 0

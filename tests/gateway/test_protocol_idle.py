"""Does a connection on which nothing happens end in time, keep nothing, and serve what is asked after all?"""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.asgi import AsgiLine
from gateway.call import Call
from gateway.exchange import Exchange, Line
from gateway.protocol import GatewayProtocol, Handle
from tests.gateway.lanes import (
    BIG,
    SSE,
    House,
    Serve,
    Visitor,
    echo,
    house,
    on_both_lanes,
    post,
    refuse,
    waiting,
)

pytestmark = on_both_lanes

OF_A_REQUEST = (AsgiLine, Call, Exchange, Handle, RequestResponseCycle)


async def test_an_idle_connection_is_closed_when_its_time_is_over(lane: str) -> None:
    async with house(lane, echo, keep_alive_s=1) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post())
            assert (await visitor.hear()).status == 200
        assert await visitor.is_closed()


async def test_a_connection_in_use_is_not_idle_and_its_time_begins_anew(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, release = asyncio.Event(), asyncio.Event()
    check_idle = GatewayProtocol._check_idle

    def check_and_tell(protocol: GatewayProtocol) -> None:
        check_idle(protocol)
        looked.set()

    async def serve(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        if body == b"[1]":
            await release.wait()
        await exchange.reply(200, [], body)

    monkeypatch.setattr(GatewayProtocol, "_check_idle", check_and_tell)
    async with house(lane, serve, keep_alive_s=1) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        visitor.say(post(b"[1]"))
        await looked.wait()  # the first answer's time is over, and the second is being made
        release.set()
        assert (await visitor.hear()).body == b"[1]"
        check_idle(at.protocols[1])  # as a timer would that was set for the first answer
        assert not at.protocols[1].transport.is_closing()
        assert await visitor.is_closed()


async def test_a_head_that_is_coming_is_no_idleness(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        [protocol] = at.protocols
        protocol._idle_since -= protocol.timeout_keep_alive
        visitor.say(b"POST /x HTTP/1.1\r\n")
        while not protocol._in_head:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        protocol._check_idle()
        assert not protocol.transport.is_closing()


# What it keeps


def kept_by(protocol: GatewayProtocol) -> list[object]:
    of_uvicorn = (protocol.cycle, protocol.scope, protocol.headers)
    ours = (protocol._call, protocol._handle, protocol.on_lost)
    return [kept for kept in (*of_uvicorn, *ours) if kept is not None]


async def test_an_idle_connection_keeps_nothing_of_its_last_request_and_serves_the_next(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(3):
            visitor.say(post(b"[1]"))
            assert (await visitor.hear()).body == b"[1]"
            assert kept_by(at.protocols[0]) == []


async def test_a_connection_whose_upload_was_refused_keeps_nothing_of_it_once_it_has_come(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post(b"x" * 1000, length=BIG))
            assert (await visitor.hear()).status == 401
            [protocol, *_] = at.protocols
            assert protocol._in_body, "the rest is still to come"
            visitor.say(b"x" * (BIG - 1000))
            while kept_by(protocol):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0)
            assert kept_by(protocol) == []


async def test_a_connection_that_is_lost_keeps_nothing(lane: str) -> None:
    async with house(lane, waiting) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        visitor.hang_up()
        await at.endings.get()
        assert kept_by(at.protocols[0]) == []


Alive = Callable[[], list[type]]


@pytest.fixture
def alive() -> Iterator[Alive]:
    """What there is of this test's requests, while nothing but reference counts frees anything."""

    def found() -> list[object]:
        return [of for of in gc.get_objects() if type(of) in OF_A_REQUEST]

    gc.collect()
    gc.disable()
    of_others = found()
    ids = {id(of) for of in of_others}
    yield lambda: [type(of) for of in found() if id(of) not in ids]
    gc.enable()
    del of_others  # till here, or others could have their ids


async def gone(at: House) -> None:
    """Wait until the task of the only request has ended, and forget what the house has noted."""
    await at.endings.get()
    while at.protocols[0].tasks:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0)
    at.exchanges.clear()


async def stream(exchange: Exchange, line: Line) -> None:
    await exchange.body()
    await exchange.start(200, [SSE], None)
    pipe = exchange.pipe(lambda is_full: None)
    if pipe is not None:
        pipe.write(b"data: a\n\n")
    await exchange.finish(b"data: [DONE]\n\n")


@pytest.mark.parametrize("serve", [echo, stream, refuse])
async def test_a_request_that_was_answered_is_freed_at_once(lane: str, serve: Serve, alive: Alive) -> None:
    async with house(lane, serve) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post(b"[1]"))
            await visitor.hear()
            await gone(at)
            assert alive() == []


async def hung_up(serve: Serve, at: House) -> Visitor:
    visitor = await at.visit()
    visitor.say(post(b"[", length=100) if serve is echo else post())
    await at.began()
    if serve is stream_without_end:
        await visitor.reader.readuntil(b"a\n\n\r\n")
    visitor.hang_up()
    return visitor


async def stream_without_end(exchange: Exchange, line: Line) -> None:
    await exchange.body()
    await exchange.start(200, [SSE], None)
    exchange.pipe(lambda is_full: None)
    await exchange.send(b"data: a\n\n")
    await asyncio.Event().wait()


@pytest.mark.parametrize("serve", [echo, waiting, stream_without_end])
async def test_a_request_whose_caller_left_is_freed_with_its_connection(
    lane: str, serve: Serve, alive: Alive
) -> None:
    async with house(lane, serve) as at:
        visitor = await hung_up(serve, at)
        await at.endings.get()
        at.exchanges.clear()
        [protocol] = [weakref.ref(of) for of in at.protocols]
        at.protocols.clear()
        await visitor.writer.wait_closed()
        while protocol() is not None:  # noqa: ASYNC110 - the loop lets go of it in its own time
            await asyncio.sleep(0)
        assert alive() == []


@pytest.mark.parametrize("header", [b"connection: close", b"x-more: 1"])
async def test_a_connection_is_freed_when_it_has_ended(lane: str, header: bytes, alive: Alive) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]", header))
        await visitor.hear()
        await gone(at)
        visitor.hang_up()
        [protocol] = [weakref.ref(of) for of in at.protocols]
        at.protocols.clear()
        while protocol() is not None:  # noqa: ASYNC110 - the loop lets go of it in its own time
            await asyncio.sleep(0)
        assert alive() == []

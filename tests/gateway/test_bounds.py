"""Is no more taken of a caller than can be used, does no upload last for ever, and is each refusal heard?"""

import asyncio

import pytest

from gateway.exchange import Exchange, Line
from gateway.framing import MAX_HEAD_BYTES, MOST_WAITING
from gateway.protocol import GatewayProtocol
from tests.gateway.lanes import BIG, SOON_S, House, Visitor, echo, house, on_both_lanes, post, refuse, waiting

pytestmark = on_both_lanes

CHUNKED = (
    b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


async def is_refused(visitor: Visitor, status: int, code: str) -> None:
    """And that is the end of it."""
    answer = await visitor.hear()
    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["connection"] == "close"
    assert await visitor.is_closed()


# Heads


async def test_a_head_that_is_too_large_is_refused_also_if_one_read_brings_the_whole_of_it(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        at.protocols[0].data_received(post(b"{}", b"x-filler: " + b"x" * MAX_HEAD_BYTES))
        await is_refused(visitor, 431, "head_too_large")
        assert len(at.exchanges) == 1


async def test_a_small_head_in_a_large_read_is_not_too_large(lane: str) -> None:
    large = post(b"x" * 2 * MAX_HEAD_BYTES)
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        [protocol] = at.protocols
        protocol.data_received(large + large[:100])  # a whole one and the beginning of another
        protocol.data_received(large[100:] + post())
        for size in (2 * MAX_HEAD_BYTES, 2 * MAX_HEAD_BYTES, 2):
            assert len((await visitor.hear()).body) == size


async def test_of_requests_that_wait_on_one_connection_only_so_many_are_kept(lane: str) -> None:
    go_on = asyncio.Event()

    async def late(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        await go_on.wait()
        await exchange.reply(200, [], body)

    async with house(lane, late) as at:
        visitor = await at.visit()
        visitor.say(post() * (MOST_WAITING + 10))
        await at.began()
        go_on.set()
        for _ in range(MOST_WAITING + 1):  # one is served, not kept
            assert (await visitor.hear()).body == b"{}"
        await is_refused(visitor, 400, "invalid_http")


# Bodies


async def test_a_body_that_comes_bit_by_bit_for_ever_is_refused(lane: str) -> None:
    async with house(lane, echo, body_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(post(b"", length=1_000_000))

        async def drip() -> None:
            while True:
                visitor.say(b"x")
                await asyncio.sleep(SOON_S / 10)

        dripping = asyncio.create_task(drip())
        await is_refused(visitor, 408, "request_timeout")
        dripping.cancel()


async def test_nor_does_one_that_nobody_wants_keep_the_connection(lane: str) -> None:
    async with house(lane, refuse, body_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(post(b"", length=1_000_000))
        assert (await visitor.hear()).status == 401
        while not at.protocols[0].transport.is_closing():
            visitor.say(b"x")
            await asyncio.sleep(SOON_S / 10)


async def test_a_refused_upload_is_no_idleness(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"x", length=BIG))
        assert (await visitor.hear()).status == 401
        [protocol] = at.protocols
        protocol._idle_since -= protocol.timeout_keep_alive
        protocol._check_idle()
        visitor.say(b"x" * (BIG - 1) + post())
        assert (await visitor.hear()).status == 401


async def test_a_connection_is_idle_from_the_end_of_a_refused_upload_on(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"x", length=BIG))
        assert (await visitor.hear()).status == 401
        [protocol] = at.protocols
        protocol._idle_since = 0
        visitor.say(b"x" * (BIG - 1))
        while protocol._in_body:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        assert protocol._idle_since > 0


async def test_of_an_upload_that_was_refused_only_so_much_is_discarded(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.bounds.MAX_DISCARDED_BYTES", BIG)
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"x", length=10 * BIG))
        assert (await visitor.hear()).status == 401
        visitor.say(b"x" * 2 * BIG)
        assert await visitor.is_closed()


@pytest.mark.parametrize("rest", [b"x\r\n", b"1\r\n]x", b"1 \r\n]\r\n", b"0\r\nx y: z\r\n\r\n", b"0\n\n"])
async def test_a_body_whose_chunks_are_broken_is_refused(lane: str, rest: bytes) -> None:
    async with house(lane, echo) as at:
        at_once, later = await at.visit(), await at.visit()
        at_once.say(CHUNKED + b"1\r\n[\r\n" + rest + post())
        later.say(CHUNKED + b"1\r\n[\r\n")
        await at.began(2)
        later.say(rest + post())
        for visitor in (at_once, later):
            await is_refused(visitor, 400, "invalid_http")
        assert len(at.exchanges) == 2


async def test_a_body_that_breaks_after_it_was_refused_ends_the_connection(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(CHUNKED + b"1\r\n[\r\n")
        assert (await visitor.hear()).status == 401
        visitor.say(b"nonsense\r\n")
        assert await visitor.is_closed()


async def test_chunks_may_be_small_and_have_extensions(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(CHUNKED + b"1\r\nx\r\n" * 100_000 + b"1;a=b\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
            assert (await visitor.hear()).body == b"x" * 110_000


@pytest.mark.parametrize("what", ["an extension", "trailers"])
async def test_but_what_is_around_them_has_a_bound(lane: str, what: str) -> None:
    endless = {"an extension": b"1;a=" + b"b" * 10 * BIG, "trailers": b"0\r\n" + b"a: b\r\n" * 2 * BIG}[what]
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(CHUNKED + b"1\r\nx\r\n" + endless)
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (400, "invalid_http")


# The end


async def test_a_refusal_is_heard_by_a_caller_who_goes_on_talking(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(b"NONSENSE\r\n\r\n" + b"x" * BIG)
        await is_refused(visitor, 400, "invalid_http")


async def test_so_is_an_answer_that_is_the_last_by_a_caller_who_is_still_uploading(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"x", b"connection: close", length=BIG))
        answer = await visitor.hear()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        visitor.say(b"x" * (BIG - 1))
        assert await visitor.is_closed()


async def after_a_refusal(at: House) -> GatewayProtocol:
    visitor = await at.visit()
    visitor.say(post())
    await visitor.hear()
    visitor.say(b"NONSENSE\r\n\r\n")
    assert (await visitor.hear()).status == 400
    return at.protocols[0]


async def test_a_caller_who_does_not_end_its_side_is_not_waited_for_long(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.bounds.LINGER_S", SOON_S)
    async with house(lane, echo) as at:
        protocol = await after_a_refusal(at)
        while not protocol.transport.is_closing():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)


async def test_a_caller_who_has_heard_the_last_word_is_heard_no_longer(lane: str) -> None:
    async with house(lane, echo) as at:
        protocol = await after_a_refusal(at)
        protocol.data_received(post())
        await asyncio.sleep(0)
        assert len(at.exchanges) == 1


async def test_a_last_answer_to_a_caller_who_has_left_meanwhile_goes_nowhere(lane: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        [protocol] = at.protocols
        while protocol in protocol.connections:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        await refuse(exchange, line)

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"x", b"connection: close", length=BIG))
        await at.began()
        visitor.hang_up()
        assert await at.endings.get() is None
        at.protocols[0]._look()  # as a timer would that is due just now


@pytest.mark.parametrize("size", [2, 100_000])
async def test_who_leaves_while_more_of_its_requests_wait_ends_the_one_that_is_served(
    lane: str, size: int
) -> None:
    async with house(lane, waiting) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        visitor.say(post(b"x" * size) + post())
        [protocol] = at.protocols
        while not protocol.flow.read_paused:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        visitor.writer.transport.abort()
        assert await at.endings.get() is asyncio.CancelledError
        assert at.exchanges[0].gone == "client_gone"


async def test_who_is_still_there_is_served_however_often_that_is_looked_at(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = asyncio.Semaphore(0)
    go_on = asyncio.Event()
    look = GatewayProtocol._look

    def look_and_tell(protocol: GatewayProtocol) -> None:
        look(protocol)
        looks.release()

    async def late(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        await go_on.wait()
        await exchange.reply(200, [], body)

    monkeypatch.setattr("gateway.bounds.LOOK_S", 0.01)
    monkeypatch.setattr(GatewayProtocol, "_look", look_and_tell)
    async with house(lane, late) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]"))
        await at.began()
        visitor.say(post(b"[2]"))
        for _ in range(3):
            await looks.acquire()
        go_on.set()
        for body in (b"[1]", b"[2]"):
            assert (await visitor.hear()).body == body
        await looks.acquire()  # the last one: nothing waits any more
        while at.protocols[0]._looker is not None:  # noqa: ASYNC110
            await asyncio.sleep(0)

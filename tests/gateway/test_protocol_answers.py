"""Does an answer come as it was given, and so that the next one is found, whichever lane its request took?"""

import asyncio

import pytest

from gateway.exchange import Exchange, Line
from gateway.headers import CLOSE
from tests.gateway.lanes import BIG, JSON, SSE, House, Visitor, echo, house, on_both_lanes, post, waiting

pytestmark = on_both_lanes


async def test_one_connection_serves_request_after_request(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for body in (b"{}", b"[1]"):
            visitor.say(post(body))
            answer = await visitor.hear()
            assert (answer.status, answer.body, answer.lane) == (200, body, lane)
            assert answer.headers["x-request-id"] == "req-1"
            assert {"date", "openai-processing-ms"} <= answer.headers.keys()
            assert not {"connection", "server"} & answer.headers.keys()


async def test_requests_sent_at_once_are_answered_in_order(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"1") + post(b"2") + post(b"3"))
        assert [(await visitor.hear()).body for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_request_may_come_byte_by_byte(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for byte in post(b"{}"):
            visitor.say(bytes([byte]))
            await visitor.writer.drain()
        answer = await visitor.hear()
        assert (answer.body, answer.lane) == (b"{}", lane)


# Framing


async def test_parts_of_a_stream_leave_as_they_come(lane: str) -> None:
    go_on = asyncio.Event()

    async def stream(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        await exchange.send(b"data: a\n\n")
        await go_on.wait()
        await exchange.finish(b"data: b\n\n")

    async with house(lane, stream) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert (await visitor.hear_head()).headers["transfer-encoding"] == "chunked"
        assert await visitor.reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: a\n\n\r\n"
        go_on.set()
        assert await visitor.reader.readuntil(b"0\r\n\r\n") == b"9\r\ndata: b\n\n\r\n0\r\n\r\n"
        visitor.say(post())
        assert (await visitor.hear()).body == b"data: a\n\ndata: b\n\n"


async def test_a_part_without_content_does_not_end_a_stream(lane: str) -> None:
    async def stream(exchange: Exchange, line: Line) -> None:
        await exchange.start(200, [SSE], None)
        for data in (b"", b"a", b"", b"b"):
            await exchange.send(data)
        await exchange.finish()

    async with house(lane, stream) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post())
            assert (await visitor.hear()).body == b"ab"


async def test_a_body_of_known_length_is_not_sent_in_chunks(lane: str) -> None:
    async def parts(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [JSON], 4)
        await exchange.send(b"[1")
        await exchange.finish(b",]")

    async with house(lane, parts) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post())
            answer = await visitor.hear()
            assert (answer.headers["content-length"], answer.body) == ("4", b"[1,]")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_has_no_framing(lane: str, status: int) -> None:
    async def nothing(exchange: Exchange, line: Line) -> None:
        await exchange.start(status, [], None)
        await exchange.finish()

    async with house(lane, nothing) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post())
            head = await visitor.hear_head()
            assert head.status == status
            assert not {"transfer-encoding", "content-length"} & head.headers.keys()


# The end of a connection


@pytest.mark.parametrize("by", ["caller", "us", "both"])
@pytest.mark.parametrize("whole", [True, False])
async def test_whoever_wants_the_connection_closed_gets_it_closed_after_the_answer(
    lane: str, by: str, whole: bool
) -> None:
    headers = [JSON] if by == "caller" else [JSON, CLOSE]

    async def serve(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        if whole:
            await exchange.reply(200, headers, body)
        else:
            await exchange.start(200, headers, None)
            await exchange.finish(body)

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]", *([] if by == "us" else [b"connection: close"])))
        answer = await visitor.hear()
        assert (answer.headers["connection"], answer.body) == ("close", b"[1]")
        assert await visitor.is_closed()


async def test_a_server_that_stops_ends_what_is_under_way_and_then_the_connection(lane: str) -> None:
    go_on = asyncio.Event()

    async def stream(exchange: Exchange, line: Line) -> None:
        await exchange.start(200, [SSE], None)
        await go_on.wait()
        await exchange.finish(b"end")

    async with house(lane, stream) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert "connection" not in (await visitor.hear_head()).headers
        at.protocols[0].shutdown()
        go_on.set()
        assert await visitor.reader.read() == b"3\r\nend\r\n0\r\n\r\n"


async def test_a_server_that_stops_closes_connections_on_which_nothing_is_under_way(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        at.protocols[0].shutdown()
        assert await visitor.is_closed()


async def test_whoever_is_still_served_when_the_last_words_are_over_is_cancelled(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[Line] = []

    async def serve(exchange: Exchange, line: Line) -> None:
        lines.append(line)
        try:
            await waiting(exchange, line)
        except asyncio.CancelledError:
            exchange.gone = "by the server"  # which is no reason of an exchange's
            raise

    monkeypatch.setattr("gateway.server.LAST_WORDS_S", 0.01)
    async with house(lane, serve) as at:
        visitor = await at.visit()
        at.visitors.clear()  # it stays until the server has stopped
        visitor.say(post())
        await at.began()
    assert lines[0].task.cancelling() == 1
    visitor.hang_up()
    await visitor.writer.wait_closed()
    assert await at.endings.get() is asyncio.CancelledError


# Callers who do not read


async def test_a_full_socket_is_waited_for_and_emptied_by_the_caller(lane: str) -> None:
    async def flood(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        for _ in range(BIG // 65536):
            await exchange.send(b"x" * 65536)
        await exchange.finish(b"end")

    async with house(lane, flood) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        while at.exchanges[0].sending_since is None:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        assert not at.exchanges[0]._finished
        assert (await visitor.hear()).body == b"x" * BIG + b"end"
        assert await at.endings.get() is None


async def with_an_answer_behind_another(at: House) -> Visitor:
    """A caller who has not taken its first answer, while the second is ready."""
    visitor = await at.visit()
    visitor.say(post())
    assert await at.endings.get() is None
    visitor.say(post())
    await at.began(2)
    while at.exchanges[1].sending_since is None:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0)
    return visitor


async def test_a_whole_answer_waits_for_a_caller_who_has_not_taken_the_one_before(lane: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.reply(200, [], b"%d" % len(at.exchanges) * (4 * BIG))

    async with house(lane, serve) as at:
        visitor = await with_an_answer_behind_another(at)
        for each in (b"1", b"2"):
            assert (await visitor.hear()).body == each * (4 * BIG)


@pytest.mark.parametrize("what", ["reply", "start", "send", "finish"])
async def test_a_caller_who_hangs_up_instead_of_reading_is_waited_for_no_longer(lane: str, what: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        if len(at.exchanges) == 1:
            await exchange.reply(200, [], b"x" * (4 * BIG))
        elif what == "reply":
            await exchange.reply(200, [], b"y")
        else:
            await exchange.start(200, [], None)
            while what == "send":
                await exchange.send(b"y" * 65536)
            await exchange.finish(b"y")

    async with house(lane, serve) as at:
        visitor = await with_an_answer_behind_another(at)
        if what == "send":
            at.exchanges[1].leave("client_stalled")
        else:
            visitor.writer.transport.abort()
        assert await at.endings.get() is (asyncio.CancelledError if what == "send" else None)


async def test_a_stream_to_a_caller_who_left_goes_nowhere(lane: str) -> None:
    async def stream(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [], None)
        line.unwatch()
        visitor.hang_up()
        while not at.protocols[0].transport.is_closing():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0)
        await exchange.send(b"x")
        await exchange.finish(b"y")

    async with house(lane, stream) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert await at.endings.get() is None
        assert at.exchanges[0].gone == ""

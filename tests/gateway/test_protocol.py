"""Does a connection keep its deadlines and bounds, whichever lane a request takes?"""

import asyncio
import logging

import pytest

from gateway.exchange import Exchange, Line
from gateway.framing import MAX_HEAD_BYTES
from tests.gateway.lanes import BIG, LIMIT, SOON_S, echo, house, on_both_lanes, post, refuse

pytestmark = on_both_lanes

CHUNKED = (
    b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


# Heads


async def test_a_head_that_does_not_come_in_time_is_refused(lane: str) -> None:
    async with house(lane, echo, header_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(b"POST /x HTTP/1.1\r\nhost:")
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert len(answer.headers["x-request-id"]) == 32
        assert answer.headers["connection"] == "close"
        assert await visitor.is_closed()
        assert at.exchanges == []


async def test_a_connection_on_which_nothing_is_said_is_closed_without_a_word(lane: str) -> None:
    async with house(lane, echo, header_timeout_s=SOON_S) as at:
        assert await (await at.visit()).is_closed()


@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n\r\n"])
async def test_empty_lines_before_a_head_do_not_extend_its_time(lane: str, lines: bytes) -> None:
    async with house(lane, echo, header_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(lines)
        assert await visitor.is_closed()


async def test_empty_lines_before_a_head_are_passed_over(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(b"\r\n" + post(b"[1]"))
            assert (await visitor.hear()).body == b"[1]"


async def test_a_later_head_has_the_same_deadline_and_an_idle_connection_has_none(lane: str) -> None:
    async with house(lane, echo, header_timeout_s=SOON_S) as at:
        idle, slow = await at.visit(), await at.visit()
        for visitor in (idle, slow):
            visitor.say(post())
            await visitor.hear()
        slow.say(b"POST /x")
        assert (await slow.hear()).code == "request_timeout"
        silent = await at.visit()
        assert await silent.is_closed()  # by now the time is up
        idle.say(post(b"[1]"))
        assert (await idle.hear()).body == b"[1]"


async def test_a_head_that_comes_with_the_end_of_a_refused_body_has_a_deadline_of_its_own(lane: str) -> None:
    async with house(lane, refuse, header_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(post(b"[", length=2))
        assert (await visitor.hear()).status == 401
        visitor.say(b"]POST /x")
        assert (await visitor.hear()).code == "request_timeout"


async def test_what_comes_before_a_head_in_the_same_read_is_no_part_of_it(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"", length=MAX_HEAD_BYTES))
        assert (await visitor.hear()).status == 401
        following = post()
        at.protocols[0].data_received(b"x" * MAX_HEAD_BYTES + following[:20])
        visitor.say(following[20:])
        assert (await visitor.hear()).status == 401


async def test_a_head_without_end_is_refused(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(b"POST /x HTTP/1.1\r\nx-filler: " + b"x" * (MAX_HEAD_BYTES + 1))
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (431, "head_too_large")
        assert await visitor.is_closed()


async def test_a_large_head_within_the_bound_is_read(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(2):  # the bound is for each
            visitor.say(post(b"{}", b"x-filler: " + b"x" * (MAX_HEAD_BYTES - 1000)))
            assert (await visitor.hear()).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS on a plain port\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"POST /x HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
        b"POST /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_in_json(lane: str, data: bytes) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(data)
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (400, "invalid_http")
        assert len(answer.headers["x-request-id"]) == 32
        assert answer.headers["connection"] == "close"
        assert await visitor.is_closed()
        assert at.exchanges == []


async def test_nonsense_after_an_answer_is_refused_likewise(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear()
        visitor.say(b"NONSENSE\r\n\r\n")
        assert (await visitor.hear()).code == "invalid_http"


async def test_nonsense_during_an_answer_is_refused_after_it(lane: str) -> None:
    go_on = asyncio.Event()

    async def serve(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        await go_on.wait()
        await exchange.reply(200, [], body)

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]") + b"NONSENSE\r\n\r\n" + post(b"[2]"))
        await at.began()
        while not at.protocols[0]._is_deaf:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        go_on.set()
        assert (await visitor.hear()).body == b"[1]"
        assert (await visitor.hear()).code == "invalid_http"
        assert await visitor.is_closed()
        assert len(at.exchanges) == 1


async def test_a_bug_of_ours_is_not_told_as_a_mistake_of_the_caller(
    lane: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError

    async with house(lane, echo) as at:
        monkeypatch.setattr("gateway.protocol.by_name", stumble)
        visitor = await at.visit()
        visitor.say(post())
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (500, "internal_error")
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


# Framing


@pytest.mark.parametrize(
    "data",
    [
        b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: a/b\r\ncontent-length: 0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: " + b"0" * 20 + b"\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/2.0\r\nhost: a\r\n\r\n",
        b"POST /x\r\n\r\n",
        b"POST /x#y HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused_also_on_a_connection_that_was_in_order(
    lane: str, data: bytes
) -> None:
    async with house(lane, echo) as at:
        fresh, used = await at.visit(), await at.visit()
        used.say(post())
        await used.hear()
        for visitor in (fresh, used):
            visitor.say(data)
            answer = await visitor.hear()
            assert (answer.status, answer.code) == (400, "invalid_http")
            assert await visitor.is_closed()
        assert len(at.exchanges) == 1


@pytest.mark.parametrize("host", [b"h", b"h:80", b"[::1]:80", b"a_b.c", b"", b"h \t"])
async def test_whatever_can_be_a_host_is_served(lane: str, host: bytes) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post().replace(b"host: h\r\n", b"host: " + host + b"\r\n"))
            assert (await visitor.hear()).body == b"{}"


async def test_trailers_are_no_headers(lane: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.reply(200, [], b", ".join(sorted(line.fields)))

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(CHUNKED + b"1\r\n[\r\n1\r\n]\r\n0\r\nauthorization: Bearer x\r\n\r\n")
        assert (await visitor.hear()).body == b"content-type, host, transfer-encoding"


@pytest.mark.parametrize("framing", ["length", "chunked", "none"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0, anything"])
async def test_an_offer_of_another_protocol_is_not_taken_up_and_its_request_is_served(
    lane: str, protocol: bytes, framing: str
) -> None:
    head = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
    head += b"connection: Upgrade, HTTP2-Settings\r\nupgrade: " + protocol + b"\r\n"
    rest = {
        "length": b"content-length: 3\r\n\r\n[1]",
        "chunked": b"transfer-encoding: chunked\r\n\r\n3\r\n[1]\r\n0\r\n\r\n",
        "none": b"\r\n",
    }[framing]
    async with house(lane, echo) as at:
        for cut in (len(head + rest), len(head), len(head + rest) - 1):  # whole, and in two reads
            visitor = await at.visit()
            visitor.say((head + rest)[:cut])
            await visitor.writer.drain()
            await asyncio.sleep(0)
            visitor.say((head + rest)[cut:] + post(b"[2]"))
            answer = await visitor.hear()
            assert (answer.status, answer.body) == (200, b"" if framing == "none" else b"[1]")
            assert (await visitor.hear()).body == b"[2]"


async def test_nobody_gets_a_tunnel(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(b"CONNECT h:80 HTTP/1.1\r\nhost: h:80\r\n\r\n" + post())
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, POST"
        assert await visitor.is_closed()
        assert at.exchanges == []


async def test_an_upload_that_was_refused_before_its_sender_was_told_to_go_on_ends_the_connection(
    lane: str,
) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"", b"expect: 100-continue", length=2))
        answer = await visitor.hear()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert await visitor.is_closed()


async def test_a_server_that_stops_ends_also_a_connection_whose_caller_was_told_to_go_on(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"", b"expect: 100-continue", length=2))
        assert await visitor.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        at.protocols[0].shutdown()
        visitor.say(b"{}")
        assert (await visitor.hear()).headers["connection"] == "close"
        assert await visitor.is_closed()


# Bodies


@pytest.mark.parametrize("begun", [b"{", b""])
async def test_a_body_that_comes_to_a_halt_is_refused(lane: str, begun: bytes) -> None:
    async with house(lane, echo, body_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(post(begun, length=100))
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await visitor.is_closed()  # what else of the body would come is no request


async def test_a_body_that_nobody_wants_to_the_end_does_not_keep_the_connection(lane: str) -> None:
    async with house(lane, refuse, body_timeout_s=SOON_S) as at:
        visitor = await at.visit()
        visitor.say(post(b"{", length=100))
        assert (await visitor.hear()).status == 401
        assert await visitor.is_closed()


async def test_a_refused_body_that_still_comes_is_discarded_and_the_connection_goes_on(lane: str) -> None:
    async with house(lane, refuse) as at:
        visitor = await at.visit()
        visitor.say(post(b"x" * 1000, length=BIG))
        assert (await visitor.hear()).status == 401
        visitor.say(b"x" * (BIG - 1000) + post())
        assert (await visitor.hear()).status == 401
        assert at.lanes == [lane, lane]


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_larger_than_allowed_is_refused_discarded_and_the_connection_goes_on(
    lane: str, announced: bool
) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        content = b"x" * (LIMIT + 1)
        if announced:
            visitor.say(post(content))
        else:
            head = CHUNKED
            visitor.say(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (413, "body_too_large")
        visitor.say(post(b"[2]"))
        assert (await visitor.hear()).body == b"[2]"


@pytest.mark.parametrize("another", [b"application/json", b"text/plain", b""])
async def test_a_body_of_two_types_is_of_none(lane: str, another: bytes) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"{}", b"content-type: " + another))
        answer = await visitor.hear()
        assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_body_may_come_in_chunks_with_trailers(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(CHUNKED)
            for piece in (b"1\r\n[\r\n", b"1\r\n]\r\n", b"0\r\nx-trailer: 1\r\n\r\n"):
                visitor.say(piece)
                await visitor.writer.drain()
            assert (await visitor.hear()).body == b"[]"


async def test_a_body_that_waits_for_us_has_all_the_time_it_needs(lane: str) -> None:
    may_read = asyncio.Event()

    async def late(exchange: Exchange, line: Line) -> None:
        if len(at.exchanges) == 1:
            await may_read.wait()
        await echo(exchange, line)

    async with house(lane, late, body_timeout_s=SOON_S) as at:
        patient = await at.visit()
        patient.say(post(b"x" * BIG))
        await at.began()
        slow = await at.visit()
        slow.say(post(b"{", length=100))
        assert (await slow.hear()).status == 408  # by now the time is up
        may_read.set()
        assert (await patient.hear()).body == b"x" * BIG


async def test_a_body_that_nobody_asks_for_is_left_on_the_socket(lane: str) -> None:
    may_read = asyncio.Event()

    async def late(exchange: Exchange, line: Line) -> None:
        await may_read.wait()
        await echo(exchange, line)

    async with house(lane, late) as at:
        visitor = await at.visit()
        visitor.say(post(b"x" * BIG))
        await at.began()
        [protocol] = at.protocols
        while not protocol.flow.read_paused:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        may_read.set()
        assert (await visitor.hear()).body == b"x" * BIG
        assert not protocol.flow.read_paused


async def test_of_a_refused_body_no_more_is_taken_than_of_one_that_nobody_asks_for(lane: str) -> None:
    """The refusal waits for a caller who has not taken the answer before it."""

    async def serve(exchange: Exchange, line: Line) -> None:
        if len(at.exchanges) == 1:
            await exchange.body()
            await exchange.reply(200, [], b"x" * (4 * BIG))
        else:
            await echo(exchange, line)

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        [protocol] = at.protocols
        visitor.say(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (4 * LIMIT, b"x" * (4 * LIMIT)))
        await at.began(2)
        while at.exchanges[1].sending_since is None:  # noqa: ASYNC110 - the refusal waits
            await asyncio.sleep(0)
        while not protocol.flow.read_paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len((await visitor.hear()).body) == 4 * BIG
        assert (await visitor.hear()).status == 413

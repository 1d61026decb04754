"""Does a connection keep its deadlines and bounds, whichever lane a request takes?"""

import asyncio

import pytest

from gateway.exchange import Exchange, Line
from gateway.protocol import MAX_HEAD_BYTES
from tests.gateway.lanes import BIG, LIMIT, SOON_S, echo, house, on_both_lanes, post, refuse, waiting

pytestmark = on_both_lanes


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


async def test_nonsense_during_an_answer_ends_the_connection_and_is_never_taken_for_the_answer(
    lane: str,
) -> None:
    async with house(lane, waiting) as at:
        visitor = await at.visit()
        visitor.say(post() + b"NONSENSE\r\n\r\n")
        assert await visitor.is_closed()
        assert await at.endings.get() is asyncio.CancelledError


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
            head = b"POST /x HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
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
            visitor.say(
                b"POST /x HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            )
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
        visitor.say(
            b"POST /x HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"%x\r\n%b\r\n0\r\n\r\n" % (4 * LIMIT, b"x" * (4 * LIMIT))
        )
        await at.began(2)
        while at.exchanges[1].sending_since is None:  # noqa: ASYNC110 - the refusal waits
            await asyncio.sleep(0)
        while not protocol.flow.read_paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len((await visitor.hear()).body) == 4 * BIG
        assert (await visitor.hear()).status == 413

"""Does a request take the lane that can serve it, and is none lost where they change on one connection?"""

import asyncio
import itertools

import pytest

from gateway import settings
from gateway.exchange import Exchange, Line
from gateway.headers import CLOSE
from gateway.server import ServesDirectly, listen, running
from tests.gateway.lanes import JSON, SSE, Serve, echo, house, post, waiting
from tests.gateway.test_server import saying

ODD = {
    "query": post(target=b"/x?a=1"),
    "another path": post(target=b"/y"),
    "an escaped path": post(target=b"/%78"),
    "a whole url": post(target=b"http://h/x"),
    "GET": post(method=b"GET"),
    "PUT": post(method=b"PUT"),
    "Origin": post(b"{}", b"origin: http://h"),
    "Upgrade": post(b"{}", b"upgrade: h2c"),
}


@pytest.mark.parametrize("request_", [post(), post(b"{}", b"x-more: 1"), post(b"x" * 100_000)])
async def test_a_plain_request_is_served_directly(request_: bytes) -> None:
    async with house("direct", echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(request_)
            assert (await visitor.hear()).lane == "direct"
        assert at.lanes == ["direct"] * 2


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_what_is_odd_about_a_request_is_served_through_asgi_and_what_follows_directly(
    odd: bytes,
) -> None:
    async with house("direct", echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            for request, lane in ((odd, "asgi"), (post(b"[1]"), "direct")):
                visitor.say(request)
                answer = await visitor.hear()
                assert (answer.status, answer.lane) == (200, lane)


async def test_an_application_that_serves_nothing_directly_is_served_through_asgi() -> None:
    app = saying(b"x")
    assert not isinstance(app, ServesDirectly)
    with listen("port", "127.0.0.1", 0) as listener:
        async with running([(app, listener)], settings.Server()):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(post())
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("lane", ["asgi", "direct"])
async def test_an_answer_to_head_has_no_body(lane: str) -> None:
    async with house(lane, echo) as at:
        visitor = await at.visit()
        visitor.say(post(method=b"HEAD"))
        head = await visitor.hear_head()
        visitor.say(post(b"[2]"))
        following = await visitor.hear()
        assert (head.status, head.lane) == (200, "asgi")
        assert (following.status, following.body, following.lane) == (200, b"[2]", lane)


async def test_http_1_0_has_its_answer_and_its_connection_closed() -> None:
    async with house("direct", echo) as at:
        visitor = await at.visit()
        visitor.say(post(version=b"1.0"))
        answer = await visitor.hear()
        assert (answer.lane, answer.body, answer.headers["connection"]) == ("asgi", b"{}", "close")
        assert await visitor.is_closed()


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue"])
async def test_who_expects_to_be_told_to_go_on_is_told(value: bytes) -> None:
    async with house("direct", echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            visitor.say(post(b"", b"expect: " + value, length=2))
            assert await visitor.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            visitor.say(b"{}")
            answer = await visitor.hear()
            assert (answer.lane, answer.body) == ("asgi", b"{}")


@pytest.mark.parametrize("header", [[], [b"expect: something-else"]])
async def test_nobody_else_is_told_to_go_on(header: list[bytes]) -> None:
    async with house("direct", echo) as at:
        visitor = await at.visit()
        visitor.say(post(b"{}", b"expect: 100-continue"))
        assert await visitor.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await visitor.hear()).status == 200
        visitor.say(post(b"[2]", b"origin: http://h", *header))  # through ASGI too
        assert (await visitor.hear()).body == b"[2]"


# Several on one connection


@pytest.mark.parametrize(
    "kinds", list(itertools.product(("plain", "query", "GET"), repeat=3)), ids=lambda kinds: " ".join(kinds)
)
async def test_requests_sent_at_once_are_answered_in_order_whichever_lanes_they_take(
    kinds: tuple[str, ...],
) -> None:
    how = {"plain": (b"POST", b"/x"), "query": (b"POST", b"/x?a"), "GET": (b"GET", b"/x")}
    async with house("direct", echo) as at:
        visitor = await at.visit()
        for _ in range(2):
            bodies = [b"%d" % number for number in range(len(kinds))]
            visitor.say(
                b"".join(
                    post(body, method=how[kind][0], target=how[kind][1])
                    for body, kind in zip(bodies, kinds, strict=True)
                )
            )
            answers = [await visitor.hear() for _ in kinds]
            assert [answer.body for answer in answers] == bodies
            assert answers[0].lane == ("direct" if kinds[0] == "plain" else "asgi")
            assert {answer.lane for answer in answers[1:]} == {"asgi"}, "they wait for the first"


@pytest.mark.parametrize("targets", [(b"/x", b"/y"), (b"/y", b"/x")])
async def test_a_request_that_comes_while_another_is_served_waits_for_it(targets: tuple[bytes, ...]) -> None:
    go_on = asyncio.Event()

    async def serve(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        await go_on.wait()
        await exchange.finish(b"first" if len(at.exchanges) == 1 else b"second")

    async with house("direct", serve) as at:
        visitor = await at.visit()
        visitor.say(post(target=targets[0]))
        await visitor.hear_head()
        visitor.say(post(b"[2]", target=targets[1]))
        while not at.protocols[0].pipeline:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        go_on.set()
        assert await visitor.reader.readuntil(b"0\r\n\r\n") == b"5\r\nfirst\r\n0\r\n\r\n"
        assert (await visitor.hear()).body == b"second"


async def test_the_body_of_a_request_that_waits_goes_to_that_request() -> None:
    go_on = asyncio.Event()

    async def serve(exchange: Exchange, line: Line) -> None:
        if len(at.exchanges) == 1:
            await exchange.body()
            await go_on.wait()
            await exchange.reply(200, [JSON], b"first")
        else:
            await echo(exchange, line)

    async with house("direct", serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]") + post(b"[2", length=4))
        await at.began()
        while not at.protocols[0].pipeline:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)
        go_on.set()
        assert (await visitor.hear()).body == b"first"
        visitor.say(b"2]")
        assert (await visitor.hear()).body == b"[22]"
        visitor.say(post(b"[3]"))
        assert (await visitor.hear()).lane == "direct"


async def test_who_leaves_while_more_of_its_requests_wait_ends_the_one_that_is_served() -> None:
    async with house("direct", waiting) as at:
        visitor = await at.visit()
        visitor.say(post() + post(b"[2]"))
        await at.began()
        while at.exchanges[0]._line._on_lost is None:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0)
        visitor.hang_up()
        assert await at.endings.get() is asyncio.CancelledError
    assert at.lanes == ["direct"]


@pytest.mark.parametrize("target", [b"/x", b"/y"])
async def test_a_server_that_stops_ends_what_is_served_directly_and_closes_after_what_waits(
    target: bytes,
) -> None:
    go_on = asyncio.Event()

    async def serve(exchange: Exchange, line: Line) -> None:
        body = await exchange.body()
        await go_on.wait()
        await exchange.reply(200, [JSON], body)

    async with house("direct", serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]") + post(b"[2]", target=target) + post(b"[3]"))
        await at.began()
        at.protocols[0].shutdown()
        go_on.set()
        assert [(await visitor.hear()).body for _ in range(3)] == [b"[1]", b"[2]", b"[3]"]
        assert await visitor.is_closed()


# Both alike


@pytest.mark.parametrize("lane", ["asgi", "direct"])
async def test_a_header_that_comes_twice_is_one_of_two_values(lane: str) -> None:
    told: list[bytes] = []

    async def serve(exchange: Exchange, line: Line) -> None:
        told.append(line.fields[b"authorization"])
        await echo(exchange, line)

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"{}", b"Authorization: Bearer a", b"x-more: 1", b"AUTHORIZATION: Bearer b"))
        assert (await visitor.hear()).lane == lane
        assert told == [b"Bearer a, Bearer b"]


async def head_of_known_length(exchange: Exchange, line: Line) -> None:
    await exchange.start(200, [JSON, (b"x-more", b"a: b")], 3)
    await exchange.send(b"[1")
    await exchange.finish(b"]")


async def stream(exchange: Exchange, line: Line) -> None:
    await exchange.start(200, [SSE, (b"x-empty", b"")], None)
    await exchange.send(b"data: a\n\n")
    await exchange.finish(b"data: [DONE]\n\n")


async def whole(exchange: Exchange, line: Line) -> None:
    await exchange.reply(429, [JSON, (b"retry-after", b"1"), CLOSE], b"{}")


async def nothing(exchange: Exchange, line: Line) -> None:
    await exchange.reply(200, [], b"")


@pytest.mark.parametrize("serve", [head_of_known_length, stream, whole, nothing])
@pytest.mark.parametrize("header", [b"x-more: 1", b"connection: close"])
async def test_an_answer_is_the_same_on_both_lanes(serve: Serve, header: bytes) -> None:
    async def heard(lane: str) -> tuple[int, dict[str, str], bytes]:
        async with house(lane, serve) as at:
            visitor = await at.visit()
            visitor.say(post(b"{}", header))
            answer = await visitor.hear()
            assert at.lanes == [lane]
            assert answer.headers.pop("date")
            return answer.status, answer.headers, answer.body

    assert await heard("direct") == await heard("asgi")


# Bugs


async def test_a_bug_that_nobody_else_caught_is_logged_and_its_caller_not_left_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        raise ZeroDivisionError

    async with house("direct", fail) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert await visitor.is_closed()
        assert at.protocols[0].tasks == set()
    [record] = caplog.records
    assert record.getMessage() == "a request failed by a bug of the gateway"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


async def test_who_gets_no_answer_is_not_left_waiting() -> None:
    async def forget(exchange: Exchange, line: Line) -> None:
        await exchange.body()

    async with house("direct", forget) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert await visitor.is_closed()

"""Does an answer whose write was put off leave all the same, and before whatever follows it?"""

from gateway.exchange import Exchange, Line
from gateway.framing import invalid
from gateway.protocol import GatewayProtocol
from gateway.uploads import Pace
from tests.gateway.lanes import SSE, echo, house, on_both_lanes, post, refuse

pytestmark = on_both_lanes


async def test_what_was_put_off_leaves_before_the_end_of_the_stream(lane: str) -> None:
    async def in_one_turn(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        await exchange.send(b"one")
        await exchange.finish(b"two")

    async with house(lane, in_one_turn) as at:
        visitor = await at.visit()
        visitor.say(post())
        assert "transfer-encoding" in (await visitor.hear_head()).headers
        assert await visitor.reader.readuntil(b"0\r\n\r\n") == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_an_answer_that_was_put_off_leaves_before_a_stream_that_follows(lane: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        if await exchange.body() == b"[1]":
            await exchange.reply(200, [], b"one")
        else:
            await exchange.start(200, [], None)
            await exchange.finish(b"two")

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]") + post(b"[2]"))
        assert [(await visitor.hear()).body for _ in range(2)] == [b"one", b"two"]


async def test_an_answer_that_was_put_off_is_not_lost_when_the_server_stops(lane: str) -> None:
    async def stop_at_once(exchange: Exchange, line: Line) -> None:
        await echo(exchange, line)
        at.protocols[0].shutdown()

    async with house(lane, stop_at_once) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]"))
        assert (await visitor.hear()).body == b"[1]"
        assert await visitor.is_closed()


async def test_an_answer_that_was_put_off_is_not_lost_when_the_time_of_its_upload_is_over(lane: str) -> None:
    async def serve(exchange: Exchange, line: Line) -> None:
        await refuse(exchange, line)
        [protocol] = at.protocols
        protocol._pace = Pace(pause_s=0, now=0)
        protocol._is_late()  # as a timer would that is due just now

    async with house(lane, serve) as at:
        visitor = await at.visit()
        visitor.say(post(b"[", length=2))
        assert (await visitor.hear()).status == 401
        assert await visitor.is_closed()


async def test_an_answer_that_was_put_off_comes_before_a_refusal_of_what_follows(lane: str) -> None:
    async def refuse_at_once(exchange: Exchange, line: Line) -> None:
        await echo(exchange, line)
        protocol: GatewayProtocol = at.protocols[0]
        protocol._break_off(invalid("it is not"))

    async with house(lane, refuse_at_once) as at:
        visitor = await at.visit()
        visitor.say(post(b"[1]"))
        assert (await visitor.hear()).body == b"[1]"
        assert (await visitor.hear()).code == "invalid_http"

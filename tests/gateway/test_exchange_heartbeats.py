"""Is a caller who waits for a stream told that it is still served, and only where no harm is done?"""

import asyncio
import json

import pytest

from gateway.errors import Draining, WorkerBroke
from gateway.exchange import HEARTBEAT, Exchange, Line
from gateway.model import Quota, Quotas
from tests.gateway.lanes import BIG, house, on_both_lanes, post
from tests.gateway.test_exchange import JSON, SSE, TOLD, FakeLine, exchange, told
from tests.gateway.test_model import Clock, job

BEAT = ("send", HEARTBEAT)


def test_a_heartbeat_is_a_comment_of_one_line() -> None:
    assert HEARTBEAT.startswith(b":")
    assert HEARTBEAT.index(b"\n") == len(HEARTBEAT) - 1
    assert b"\r" not in HEARTBEAT


async def test_the_first_heartbeat_begins_the_stream_with_what_is_known_by_then() -> None:
    line, clock = FakeLine(), Clock()
    made = exchange(line, clock, job=job(stream=True), quotas=Quotas(Quota(60, 59, 1.0)))
    clock.now += 15
    for _ in range(2):
        made.beat()
    [(what, status, head, length), *beats] = line.heard
    assert (what, status, length, made.trip.status) == ("start", 200, None, 200)
    headers = told(head)
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-cache", b"no")
    assert (headers[b"x-ratelimit-remaining-requests"], headers[b"x-gateway-queue-ms"]) == (b"59", b"15000")
    assert headers.keys() > TOLD
    assert beats == [BEAT, BEAT]


async def test_who_has_left_the_queue_is_told_how_long_it_was_there() -> None:
    line, clock = FakeLine(), Clock()
    made = exchange(line, clock, job=job(stream=True), worker="w1", queue_s=2.0)
    clock.now += 15
    made.beat()
    assert told(line.heard[0][2])[b"x-gateway-queue-ms"] == b"2000"


async def test_a_stream_goes_on_behind_heartbeats_without_a_second_head() -> None:
    line = FakeLine()
    made = exchange(line)
    made.beat()
    await made.start(200, [SSE], None)
    await made.send(b"data: a\n\n")
    made.beat()
    await made.finish(b"data: [DONE]\n\n")
    assert line.said() == ["start", "send", "send", "send", "finish"]
    assert [word[1] for word in line.heard[1:]] == [HEARTBEAT, b"data: a\n\n", HEARTBEAT, b"data: [DONE]\n\n"]


async def test_a_stream_that_has_begun_by_itself_has_heartbeats_too() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [SSE], None)
    made.beat()
    assert line.said() == ["start", "send"]
    assert line.heard[1] == BEAT


@pytest.mark.parametrize("error", [WorkerBroke("reset"), Draining("Later.", retry_after_s=1)])
async def test_an_error_after_a_heartbeat_is_an_event_with_its_own_code(
    error: WorkerBroke | Draining,
) -> None:
    line = FakeLine()
    made = exchange(line)
    made.beat()
    await made.fail(error)
    assert line.heard[1:-1] == [BEAT]
    what, event = line.heard[-1]
    assert (what, event[-2:], event.count(b"\n")) == ("finish", b"\n\n", 2)
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == error.code
    assert (made.trip.status, made.trip.outcome) == (200, error.code)


async def test_a_workers_refusal_after_a_heartbeat_is_an_event() -> None:
    line = FakeLine()
    made = exchange(line)
    made.beat()
    await made.reply(400, [JSON], b'{\r\n "error": {\n"code": 400}}\n')
    assert line.heard[2:] == [("finish", b'data: {  "error": { "code": 400}}\n\n')]
    made.beat()  # too late
    assert (made.trip.status, len(line.heard)) == (200, 3)


async def gone(made: Exchange, line: FakeLine) -> None:
    line.task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    made.leave("client_gone")


async def behind(made: Exchange, line: FakeLine) -> None:
    line.is_behind = True


async def over(made: Exchange, line: FakeLine) -> None:
    await made.start(200, [SSE], None)
    await made.finish(b"data: [DONE]\n\n")


async def plain(made: Exchange, line: FakeLine) -> None:
    await made.start(200, [JSON], None)


async def of_known_length(made: Exchange, line: FakeLine) -> None:
    await made.start(200, [SSE], 500)


async def sending(made: Exchange, line: FakeLine) -> None:
    await made.start(200, [SSE], None)
    made.sending_since = 1000.0  # as while the line waits for its caller


@pytest.mark.parametrize("state", [gone, behind, over, plain, of_known_length, sending])
async def test_there_is_no_heartbeat_where_it_could_do_harm(state: object) -> None:
    line = FakeLine()
    made = exchange(line)
    await state(made, line)  # type: ignore[operator]
    said = line.said()
    made.beat()
    assert line.said() == said


async def test_a_heartbeat_is_no_progress_of_a_caller_who_takes_nothing() -> None:
    line, clock = FakeLine(), Clock()
    made = exchange(line, clock)
    await made.start(200, [SSE], None)
    line.takes.clear()
    waiting = asyncio.create_task(made.send(b"data: a\n\n"))
    await asyncio.sleep(0)
    since = made.sending_since
    clock.now += 15
    made.beat()
    assert made.sending_since == since
    line.takes.set()
    await waiting
    assert line.said() == ["start", "send"]


async def unread(exchange: Exchange, line: Line) -> None:
    """More than a caller takes that does not read; then it may go on."""
    await exchange.body()
    await exchange.start(200, [SSE], None)
    states = [line.is_behind]
    await exchange.send(bytes(BIG))
    states.append(line.is_behind)
    assert states == [False, True]
    while line.is_behind:  # noqa: ASYNC110 - the transport tells nobody
        await asyncio.sleep(0.001)
    exchange.beat()
    await exchange.finish()


@on_both_lanes
async def test_a_caller_is_behind_until_it_has_read_what_was_sent(lane: str) -> None:
    async with house(lane, unread) as at:
        visitor = await at.visit()
        visitor.say(post())
        answer = await visitor.hear()
        assert (answer.status, answer.body) == (200, bytes(BIG) + HEARTBEAT)
        assert await at.endings.get() is None


@on_both_lanes
async def test_a_caller_who_has_left_is_behind(lane: str) -> None:
    async def left(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        try:
            await asyncio.Event().wait()
        finally:
            assert line.is_behind

    async with house(lane, left) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        visitor.hang_up()
        assert await at.endings.get() is asyncio.CancelledError


async def test_a_line_that_waits_although_its_caller_is_not_behind_is_a_bug() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [SSE], None)
    line.takes.clear()
    with pytest.raises(RuntimeError, match="not behind"):
        made.beat()

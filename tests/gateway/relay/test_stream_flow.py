"""Do worker and caller wait for each other, and is nothing lost when one of them does not?"""

import asyncio

import pytest

from gateway.errors import WorkerBroke
from gateway.upstream.connection import Timeouts
from tests.gateway.relay.live import Live, flowing, rounds
from tests.gateway.relay.relaying import DONE, TOKEN, framed
from tests.gateway.upstream.feeding import BRIEF_S, END, HEAD, chunk, time_passes


def event(number: int) -> bytes:
    return b'data: {"choices":[{"text":"%d"}]}\n\n' % number


def fills(live: Live) -> None:
    """From now on the caller is full with its next write."""

    def full() -> None:
        live.caller.on_write = lambda: None
        live.caller.has_pipe = False
        live.caller.on_full(True)

    live.caller.on_write = full


def drains(live: Live) -> None:
    live.caller.has_pipe = True
    live.caller.on_full(False)


# A caller who is full


async def test_a_caller_who_is_full_has_the_worker_wait_and_nothing_is_lost_or_out_of_order() -> None:
    live = await flowing()
    for number in range(0, 30, 3):
        fills(live)
        live.connection.data_received(framed(event(number)))
        live.connection.data_received(framed(event(number + 1)))  # the loop had read it already
        assert live.transport.calls == ["pause", "resume"] * (number // 3) + ["pause"]
        await rounds()
        drains(live)
        assert live.transport.calls == ["pause", "resume"] * (number // 3 + 1)
        await live.feed(framed(event(number + 2)))
    await live.feed(framed(DONE))
    await live.end()
    assert live.caller.writes == [TOKEN, *map(event, range(30))]
    assert (live.caller.last, live.given_back, live.ran.trip.outcome) == (DONE, [True], "ok")


async def test_the_worker_may_be_held_by_what_came_before_the_pipe() -> None:
    live = Live()
    await rounds()

    def comes_meanwhile() -> None:
        fills(live)
        live.connection.data_received(framed(event(1)))

    live.caller.on_write = comes_meanwhile  # while the first token is sent
    await live.feed(framed(TOKEN))
    assert (live.caller.writes, live.transport.calls) == ([TOKEN, event(1)], ["pause"])
    drains(live)
    await live.feed(framed(DONE))
    await live.end()
    assert (live.caller.body, live.given_back) == (TOKEN + event(1) + DONE, [True])


async def test_no_worker_is_silent_while_its_caller_takes_nothing() -> None:
    live = Live(timeouts=Timeouts(connect_s=60, first_byte_s=60, gap_s=BRIEF_S))
    live.connection.data_received(framed(TOKEN))
    await rounds()
    fills(live)
    live.connection.data_received(framed(TOKEN))
    await time_passes()
    assert not live.task.done()
    drains(live)
    await live.feed(framed(DONE))
    await live.end()
    assert live.ran.trip.outcome == "ok"


async def test_a_caller_who_leaves_while_it_is_full_leaves_no_connection_that_is_not_read() -> None:
    live = await flowing()
    fills(live)
    live.connection.data_received(framed(TOKEN) + END)  # that was all, and it is too much for the caller
    live.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await live.task
    assert (live.given_back, live.transport.calls) == ([True], ["pause", "resume"])
    live.caller.on_full(False)  # too late to matter
    assert live.transport.calls == ["pause", "resume"]


# A caller whom the end of its answer fills: its pipe does not tell of room any more


async def test_a_caller_full_of_its_last_event_does_not_keep_the_worker_from_ending() -> None:
    live = await flowing()
    fills(live)
    await live.feed(framed(DONE))
    assert (live.caller.last, live.transport.calls) == (DONE, ["pause", "resume"])
    await live.end()
    assert (live.given_back, live.ran.trip.outcome) == ([True], "ok")


async def test_a_connection_whose_answer_filled_its_caller_serves_the_next() -> None:
    for rest in (framed(DONE) + END, framed(TOKEN[:9]) + END):
        live = await flowing()
        fills(live)
        live.connection.data_received(rest)
        await live.task
        assert (live.given_back, live.transport.calls) == ([True], ["pause", "resume"])
        live.connection.send(b"HEAD", [], 0)
        live.connection.data_received(HEAD + chunk(b"a") + END)
        assert live.connection.take() == b"a"


# A pipe that is not there


async def test_without_a_pipe_what_comes_is_read_until_there_is_one_again() -> None:
    live = Live(piped=False)
    await rounds()
    await live.feed(framed(TOKEN), framed(event(1)), framed(event(2)))
    assert live.caller.writes == [TOKEN, event(1), event(2)]
    live.caller.has_pipe = True
    await live.feed(framed(event(3)))  # is read, for it was waited for
    assert live.caller.chunks == []
    await live.feed(framed(event(4)), framed(event(5)))
    assert live.caller.chunks == [framed(event(4)), framed(event(5))]
    await live.feed(framed(DONE))
    await live.end()
    assert live.caller.body == TOKEN + b"".join(map(event, range(1, 6))) + DONE
    assert (live.ran.trip.events, live.given_back) == (6, [True])


async def test_a_caller_who_is_full_from_the_start_is_waited_for_and_then_has_a_pipe() -> None:
    live = Live()
    room = asyncio.Event()
    send = live.caller.send

    async def send_when_there_is_room(data: bytes) -> None:
        await room.wait()
        await send(data)

    live.caller.send = send_when_there_is_room  # type: ignore[method-assign]
    await live.feed(framed(TOKEN), framed(event(1)), framed(event(2)))
    assert live.caller.writes == []
    room.set()
    await rounds()
    await live.feed(framed(event(3)), framed(DONE))
    await live.end()
    assert live.caller.writes == [TOKEN, event(1) + event(2), event(3)]
    assert (live.caller.piped, live.caller.chunks) == ([event(1) + event(2)], [framed(event(3))])


# Leaving, and losing the worker


@pytest.mark.parametrize("piped", [True, False])
async def test_a_caller_who_leaves_in_mid_stream_ends_the_workers_work(piped: bool) -> None:
    live = await flowing(piped=piped)
    await live.feed(framed(event(1)))
    live.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await live.task
    assert (live.given_back, live.transport.aborted, live.connection.sink) == ([False], True, None)
    assert (live.caller.writes, live.caller.last) == ([TOKEN, event(1)], None)
    assert (live.ran.trip.events, live.ran.trip.outcome) == (2, "")


@pytest.mark.parametrize("piped", [True, False])
async def test_a_worker_lost_just_after_its_last_event_has_done_its_work(piped: bool) -> None:
    live = await flowing(piped=piped)
    live.connection.data_received(framed(DONE))
    live.connection.connection_lost(ConnectionResetError())
    await live.task
    assert (live.caller.last, live.ran.trip.outcome, live.given_back) == (DONE, "ok", [False])


@pytest.mark.parametrize("piped", [True, False])
async def test_a_worker_lost_while_its_caller_is_held_is_told_after_what_it_sent(piped: bool) -> None:
    live = await flowing(piped=piped)
    fills(live)
    live.connection.data_received(framed(event(1)))
    live.connection.connection_lost(ConnectionResetError())
    with pytest.raises(WorkerBroke):
        await live.task
    live.caller.on_full(False)
    assert live.caller.writes == [TOKEN, event(1)]


@pytest.mark.parametrize("piped", [True, False])
async def test_the_end_that_comes_apart_is_waited_for_so_that_the_connection_serves_again(
    piped: bool,
) -> None:
    live = await flowing(piped=piped)
    await live.feed(framed(DONE))
    assert (live.caller.last, live.task.done()) == (DONE, False)
    await live.end()
    assert live.given_back == [True]

"""Does a call take a body no faster than it is asked for, and tell what becomes of an upload?"""

import asyncio

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from gateway.call import Call
from gateway.errors import UploadTooSlow
from gateway.exchange import ClientGone
from tests.gateway.test_call import FakeWire, call

LIMIT = 20  # bytes of a body


async def asking(made: Call, most_bytes: int = LIMIT) -> "asyncio.Task[bytes | None]":
    """One who asks for the body, and waits."""
    task = asyncio.create_task(made.body(most_bytes))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_body_that_came_in_one_piece_is_given_as_it_came() -> None:
    made, content = call(), bytes(bytearray(b'{"a": 1}'))
    made.feed(content)
    made.fed()
    assert await made.body(LIMIT) is content


async def test_a_body_may_be_empty() -> None:
    made = call()
    made.fed()
    assert await made.body(LIMIT) == b""


@pytest.mark.parametrize("before", [0, 1, 2, 3])
async def test_a_body_in_pieces_is_joined_and_waited_for(before: int) -> None:
    made, pieces = call(), [b'{"a"', b": ", b"1}"]
    for piece in pieces[:before]:
        made.feed(piece)
    task = await asking(made)
    for piece in pieces[before:]:
        made.feed(piece)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
    made.fed()
    assert await task == b'{"a": 1}'


async def test_several_pieces_may_come_before_who_asks_has_woken() -> None:
    made = call()
    task = await asking(made)
    made.feed(b"{")
    made.feed(b"}")
    made.fed()
    assert await task == b"{}"


@pytest.mark.parametrize("size", [0, 1, LIMIT])
async def test_a_body_of_just_the_limit_is_read(size: int) -> None:
    made = call()
    made.feed(b"x" * size)
    made.fed()
    assert await made.body(LIMIT) == b"x" * size


@pytest.mark.parametrize("pieces", [[LIMIT + 1], [LIMIT, 1], [1, LIMIT], [7, 7, 7]])
@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_body_that_is_too_large_is_none_and_not_waited_for(pieces: list[int], is_whole: bool) -> None:
    made = call()
    *first, last = pieces
    for size in first:
        made.feed(b"x" * size)
    task = await asking(made)
    made.feed(b"x" * last)
    if is_whole:
        made.fed()
    assert await task is None


async def test_no_more_than_a_little_is_taken_off_the_socket_until_it_is_asked_for() -> None:
    wire = FakeWire()
    made = call(wire)
    made.feed(b"x" * HIGH_WATER_LIMIT)
    assert wire.socket.is_read()
    made.feed(b"x")
    assert not wire.socket.is_read()
    task = await asking(made, 10 * HIGH_WATER_LIMIT)
    assert wire.socket.is_read()
    made.feed(b"x" * HIGH_WATER_LIMIT)
    assert wire.socket.is_read()
    made.fed()
    assert await task == b"x" * (2 * HIGH_WATER_LIMIT + 1)


@pytest.mark.parametrize("why", ["too large", "stalled", "cancelled"])
async def test_nor_once_nobody_asks_for_it_any_more(why: str) -> None:
    wire = FakeWire()
    made = call(wire)
    task = await asking(made)
    if why == "too large":
        made.feed(b"x" * (LIMIT + 1))
    elif why == "stalled":
        made.upload_failure = UploadTooSlow("")
        made.message_event.set()
    else:
        task.cancel()
    await asyncio.wait([task])
    assert wire.socket.is_read()
    made.feed(b"x" * (HIGH_WATER_LIMIT + 1))
    assert not wire.socket.is_read()
    assert task.cancelled() or (task.exception() or UploadTooSlow("")).__class__ is UploadTooSlow


async def test_what_comes_after_the_answer_is_discarded() -> None:
    wire = FakeWire()
    made = call(wire)
    made.feed(b"x")
    await made.reply(401, b"", b"{}")
    made.feed(b"x" * 10 * HIGH_WATER_LIMIT)
    made.fed()
    assert (made._parts, wire.socket.is_read()) == ([b"x"], True)


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_caller_who_leaves_while_the_body_is_read_is_gone(is_waiting: bool) -> None:
    made = call()
    made.feed(b"{")
    task = await asking(made) if is_waiting else None
    made.lost()
    with pytest.raises(ClientGone):
        await (task or made.body(LIMIT))


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_body_that_comes_to_a_halt_is_refused(is_waiting: bool) -> None:
    made = call()
    made.feed(b"{")
    task = await asking(made) if is_waiting else None
    made.upload_failure = UploadTooSlow("")
    made.message_event.set()
    with pytest.raises(UploadTooSlow):
        await (task or made.body(LIMIT))


async def test_a_body_that_has_come_is_given_also_if_it_took_long_or_its_sender_left() -> None:
    made = call()
    made.feed(b"{}")
    made.fed()
    made.upload_failure = UploadTooSlow("")
    made.lost()
    assert await made.body(LIMIT) == b"{}"

"""Does a call's pipe take what needs no waiting, tell when it is full, and outlive the caller unharmed?"""

import asyncio

import pytest

from gateway.exchange import Exchange, Line
from tests.gateway.lanes import BIG, SSE, house, post
from tests.gateway.test_call import FakeWire, call


async def test_a_stream_has_a_pipe_for_data_and_for_what_is_framed_already() -> None:
    wire = FakeWire()
    made = call(wire)
    await made.start(200, b"", None)
    pipe = made.pipe(lambda is_full: None)
    assert pipe is not None
    before = len(wire.socket.written)
    pipe.write(b"ab")
    pipe.write_chunks(b"1\r\nc\r\n")
    assert wire.socket.written[before:] == b"2\r\nab\r\n1\r\nc\r\n"


@pytest.mark.parametrize("length", [0, 2])
async def test_a_body_without_frames_has_no_pipe(length: int) -> None:
    made = call()
    await made.start(200, b"", length)
    assert made.pipe(lambda is_full: None) is None


async def test_while_the_transport_is_full_there_is_no_pipe() -> None:
    wire = FakeWire()
    made = call(wire)
    await made.start(200, b"", None)
    wire.flow.pause_writing()
    assert made.pipe(lambda is_full: None) is None
    wire.flow.resume_writing()
    assert made.pipe(lambda is_full: None) is made


@pytest.mark.parametrize("how", ["lost", "abort"])
async def test_without_a_connection_there_is_no_pipe(how: str) -> None:
    made = call()
    await made.start(200, b"", None)
    getattr(made, how)()
    assert made.pipe(lambda is_full: None) is None


async def test_whether_it_is_full_is_told_until_the_end() -> None:
    made, told = call(), list[bool]()
    made.full(True)
    await made.start(200, b"", None)
    made.pipe(told.append)
    made.full(True)
    made.full(False)
    await made.finish(b"")
    made.full(True)
    assert told == [True, False]


async def test_tokens_that_come_before_the_task_has_heard_that_its_caller_left_go_nowhere() -> None:
    wire, told = FakeWire(), list[bool]()
    made = call(wire)
    await made.start(200, b"", None)
    pipe = made.pipe(told.append)
    assert pipe is not None
    before = wire.socket.written
    made.lost()
    wire.socket.close()
    pipe.write(b"x")
    pipe.write_chunks(b"1\r\nx\r\n")
    made.full(False)
    assert (wire.socket.written, told) == (before, [])


@pytest.mark.parametrize("by", ["caller", "us"])
async def test_what_is_piped_after_the_end_of_a_real_connection_goes_nowhere(by: str) -> None:
    """There uvloop raises, as on every transport that is closed."""

    async def late(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        pipe = exchange.pipe(lambda is_full: None)
        assert pipe is not None
        line.unwatch()
        if by == "us":
            line.abort()
        [protocol] = at.protocols
        while protocol in protocol.connections:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            protocol.transport.write(b"x")
        pipe.write(b"x")
        pipe.write_chunks(b"1\r\nx\r\n")
        assert exchange.pipe(lambda is_full: None) is None
        await exchange.send(b"x")
        await exchange.finish(b"x")

    async with house("direct", late) as at:
        visitor = await at.visit()
        visitor.say(post())
        await at.began()
        if by == "caller":
            await visitor.hear_head()
            visitor.hang_up()
        assert await at.endings.get() is None


async def test_a_caller_who_does_not_read_makes_a_real_pipe_full_and_one_who_reads_empties_it() -> None:
    told: asyncio.Queue[bool] = asyncio.Queue()
    written: list[int] = []

    async def flood(exchange: Exchange, line: Line) -> None:
        await exchange.body()
        await exchange.start(200, [SSE], None)
        pipe = exchange.pipe(told.put_nowait)
        assert pipe is not None
        while told.empty():
            pipe.write_chunks(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            written.append(65536)
            await asyncio.sleep(0)
        stalls = [exchange.sending_since is not None]
        assert exchange.pipe(lambda is_full: None) is None
        pipe.write(b"y" * BIG)  # it is kept all the same
        assert [await told.get(), await told.get()] == [True, False]
        stalls.append(exchange.sending_since is not None)
        assert stalls == [True, False]
        await exchange.finish(b"end")

    async with house("direct", flood) as at:
        visitor = await at.visit()
        visitor.say(post())
        await visitor.hear_head()
        while told.empty():  # noqa: ASYNC110 - and reads no further
            await asyncio.sleep(0)
        heard = b""
        while not heard.endswith(b"\r\n3\r\nend\r\n0\r\n\r\n"):
            heard += await visitor.reader.readexactly(1)
            heard += await visitor.reader.read(BIG)
        assert (heard.count(b"x"), heard.count(b"y")) == (sum(written), BIG)
        assert await at.endings.get() is None

"""Does a call answer in HTTP's own words, with and without waiting, and notice who leaves?"""

import asyncio
from typing import cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.call import Call
from gateway.headers import lines
from gateway.outbox import Outbox
from tests.gateway.lanes import JSON


class FakeTransport:
    """Keeps what is written to it, and what it was told to do."""

    def __init__(self) -> None:
        self.written = b""
        self._is_read = True
        self.ended: list[str] = []

    def write(self, data: bytes) -> None:
        assert not self.ended, "uvloop would raise"
        self.written += data

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    def is_read(self) -> bool:
        return self._is_read

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")


class FakeWire:
    def __init__(self) -> None:
        self.socket = FakeTransport()
        self.transport = cast(asyncio.Transport, self.socket)
        self.flow = FlowControl(self.transport)
        self.outbox = Outbox()
        self.complete = 0

    def default_head(self) -> bytes:
        return b"date: today\r\n"

    def on_response_complete(self) -> None:
        self.complete += 1

    def hang_up(self) -> None:
        self.outbox.flush()
        self.transport.close()

    def heard(self) -> bytes:
        self.outbox.flush()
        return self.socket.written


def call(wire: FakeWire | None = None, keep_alive: bool = True) -> Call:
    return Call(wire or FakeWire(), {}, keep_alive)


# Leaving


async def test_who_watches_hears_once_that_the_caller_left() -> None:
    made, left = call(), list[str]()
    made.watch(lambda: left.append("left"))
    made.lost()
    made.lost()
    assert left == ["left"]


async def test_who_watches_too_late_hears_at_once() -> None:
    made, left = call(), list[str]()
    made.lost()
    made.watch(lambda: left.append("left"))
    assert left == ["left"]


@pytest.mark.parametrize("how", ["unwatch", "answer"])
async def test_who_watches_no_longer_hears_nothing(how: str) -> None:
    made, left = call(), list[str]()
    made.watch(lambda: left.append("left"))
    if how == "unwatch":
        made.unwatch()
    else:
        await made.reply(200, b"", b"{}")
    made.lost()
    assert left == []


async def test_a_connection_is_read_while_somebody_watches_it() -> None:
    wire = FakeWire()
    made = call(wire)
    wire.flow.pause_reading()
    made.watch(lambda: None)
    assert wire.socket.is_read(), "or it would not tell of its end"


async def test_an_abort_ends_the_connection_and_what_is_said_then_goes_nowhere() -> None:
    wire = FakeWire()
    made = call(wire)
    await made.start(200, b"", None)
    before = wire.heard()
    pipe = made.pipe(lambda is_full: None)
    assert pipe is made
    made.abort()
    pipe.write(b"x")
    pipe.write_chunks(b"1\r\nx\r\n")
    await made.send(b"x")
    await made.finish(b"x")
    assert (wire.socket.ended, wire.heard()) == (["abort"], before)


# Out


HEAD = lines([JSON])


async def test_a_whole_answer_is_put_off_to_leave_with_others() -> None:
    wire = FakeWire()
    made = call(wire)
    await made.reply(200, HEAD, b"{}")
    assert (wire.socket.written, wire.complete, made.response_complete) == (b"", 1, True)
    assert wire.heard() == (
        b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
    )
    assert wire.socket.ended == []


async def test_a_stream_is_framed_and_comes_after_what_was_put_off() -> None:
    wire = FakeWire()
    await call(wire).reply(204, b"", b"")
    made = call(wire)
    await made.start(200, b"", None)
    await made.send(b"ab")
    await made.send(b"")
    await made.finish(b"c" * 16)
    assert wire.socket.written == (
        b"HTTP/1.1 204 No Content\r\ndate: today\r\ncontent-length: 0\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n10\r\n" + b"c" * 16 + b"\r\n0\r\n\r\n"
    )
    assert (wire.complete, made.response_complete) == (2, True)


async def test_a_body_of_known_length_has_no_frames() -> None:
    wire = FakeWire()
    made = call(wire)
    await made.start(200, b"", 3)
    await made.send(b"ab")
    await made.finish(b"c")
    assert wire.socket.written == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 3\r\n\r\nabc"


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("head", [HEAD, HEAD + b"connection: close\r\n"])
async def test_the_connection_is_closed_after_the_answer_where_somebody_wants_that(
    keep_alive: bool, head: bytes
) -> None:
    wire = FakeWire()
    await call(wire, keep_alive).reply(200, head, b"{}")
    closes = not keep_alive or head != HEAD
    assert wire.heard().count(b"connection: close\r\n") == closes
    assert wire.socket.ended == ["close"] * closes


@pytest.mark.parametrize("what", ["reply", "start", "send", "finish"])
async def test_nothing_is_said_to_a_caller_who_left_while_it_was_waited_for(what: str) -> None:
    wire = FakeWire()
    made = call(wire)
    if what in ("send", "finish"):
        await made.start(200, b"", None)
    before = wire.heard()
    wire.flow.pause_writing()
    words = {
        "reply": lambda: made.reply(200, b"", b"{}"),
        "start": lambda: made.start(200, b"", None),
        "send": lambda: made.send(b"x"),
        "finish": lambda: made.finish(b"x"),
    }
    saying = asyncio.create_task(words[what]())
    await asyncio.sleep(0)
    assert not saying.done()
    made.lost()
    wire.flow.resume_writing()
    await saying
    assert wire.heard() == before

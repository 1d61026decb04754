"""Is a body read within its bounds, an answer sent whole, and a caller's leaving noticed just once?"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from gateway.errors import (
    BodyTooLarge,
    Draining,
    UnsupportedMediaType,
    UploadTooSlow,
)
from gateway.exchange import ClientGone, Exchange
from gateway.headers import by_name
from gateway.model import Fields
from gateway.relay import Pipe
from tests.gateway.test_model import Clock, trip

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")
LIMIT = 20  # bytes of a body
TOLD = {b"x-request-id", b"openai-processing-ms"}


class FakeLine:
    """A caller who sends `content`, or fails to. What it is told is kept in order, and waits for `takes`."""

    def __init__(self, content: bytes | Exception | None = b"{}", *more: tuple[bytes, bytes]) -> None:
        self.fields: Fields = by_name([JSON, *more])
        self.task = cast("asyncio.Task[None]", asyncio.current_task())
        self.content = content
        self.asked: list[int] = []  # for the body, of that size at most
        self.on_lost: Callable[[], None] | None = None
        self.on_full: Callable[[bool], None] | None = None
        self.to_pipe: Pipe | None = None
        self.heard: list[tuple[Any, ...]] = []
        self.aborted = 0
        self.is_behind = False
        self.takes = asyncio.Event()
        self.takes.set()

    async def body(self, most_bytes: int) -> bytes | None:
        self.asked.append(most_bytes)
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def watch(self, on_lost: Callable[[], None]) -> None:
        self.on_lost = on_lost

    def unwatch(self) -> None:
        self.on_lost = None

    async def _hear(self, *word: Any) -> None:
        await self.takes.wait()
        self.heard.append(word)

    async def reply(self, status: int, head: bytes, body: bytes) -> None:
        await self._hear("reply", status, head, body)

    async def start(self, status: int, head: bytes, length: int | None) -> None:
        await self._hear("start", status, head, length)

    async def send(self, data: bytes) -> None:
        await self._hear("send", data)

    async def finish(self, data: bytes) -> None:
        await self._hear("finish", data)

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        self.on_full = on_full
        return self.to_pipe

    def abort(self) -> None:
        self.aborted += 1

    def said(self) -> list[str]:
        return [word[0] for word in self.heard]

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """The only thing that was said, a whole answer."""
        [(what, status, head, body)] = self.heard
        assert what == "reply"
        return status, told(head), body


def exchange(line: FakeLine, clock: Clock | None = None, **of_trip: Any) -> Exchange:
    clock = clock or Clock()
    return Exchange(line, trip(began=clock(), **of_trip), max_body_bytes=LIMIT, clock=clock)


def told(head: bytes) -> dict[bytes, bytes]:
    split = head.split(b"\r\n")
    assert split.pop() == b""
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in split)]
    assert len(dict(headers)) == len(headers)
    return dict(headers)


# In


async def test_a_body_is_given_as_it_came_and_its_sender_watched_from_then_on() -> None:
    content = b'{"a": 1}'
    line = FakeLine(content)
    assert await exchange(line).body() is content
    assert line.asked == [LIMIT]
    assert line.on_lost is not None


@pytest.mark.parametrize(
    "value",
    [b"application/json", b"application/json; charset=utf-8", b"APPLICATION/JSON", b" application/json ;a=b"],
)
async def test_json_is_read_under_any_spelling_of_its_type(value: bytes) -> None:
    line = FakeLine()
    line.fields = {b"content-type": value}
    assert await exchange(line).body() == b"{}"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"")],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/jsonx")],
        [(b"content-type", b"multipart/form-data; boundary=application/json")],
        [JSON, JSON],  # of several, which would be meant?
        [JSON, (b"content-type", b"text/plain")],
        [(b"content-type", b"text/plain"), JSON],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity, br")],
        [JSON, (b"content-encoding", b"gzip"), (b"content-encoding", b"identity")],
    ],
)
async def test_any_other_type_and_any_encoding_is_refused_unread(
    headers: Sequence[tuple[bytes, bytes]],
) -> None:
    line = FakeLine()
    line.fields = by_name(headers)
    with pytest.raises(UnsupportedMediaType):
        await exchange(line).body()
    assert line.asked == []


@pytest.mark.parametrize("value", [b"identity", b"Identity"])
async def test_an_encoding_of_none_is_none(value: bytes) -> None:
    assert await exchange(FakeLine(b"{}", (b"content-encoding", value))).body() == b"{}"


async def test_a_length_above_the_limit_is_refused_unread() -> None:
    line = FakeLine(b"{}", (b"content-length", b"%d" % (LIMIT + 1)))
    with pytest.raises(BodyTooLarge, match=r"larger than 20 bytes"):
        await exchange(line).body()
    assert line.asked == []


@pytest.mark.parametrize("size", [0, 1, LIMIT])
async def test_a_body_of_just_the_limit_is_read(size: int) -> None:
    line = FakeLine(b"x" * size, (b"content-length", b"%d" % size))
    assert len(await exchange(line).body()) == size


async def test_a_body_that_turns_out_too_large_is_refused_and_nobody_watched() -> None:
    line = FakeLine(None)
    with pytest.raises(BodyTooLarge, match=r"larger than 20 bytes"):
        await exchange(line).body()
    assert line.on_lost is None


@pytest.mark.parametrize("error", [ClientGone(), UploadTooSlow("It came to a halt.")])
async def test_what_happens_to_the_upload_is_passed_on(error: Exception) -> None:
    line = FakeLine(error)
    with pytest.raises(type(error)):
        await exchange(line).body()
    assert line.on_lost is None


# Leaving


async def serving(line: FakeLine) -> tuple[Exchange, "asyncio.Task[None]"]:
    """An exchange whose task waits for a worker that does not answer."""
    made = exchange(line)

    async def serve() -> None:
        await made.body()
        await asyncio.Event().wait()

    line.task = asyncio.create_task(serve())
    while line.on_lost is None:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    return made, line.task


async def test_a_caller_who_leaves_ends_the_task_that_serves_it() -> None:
    line = FakeLine()
    made, task = await serving(line)
    assert line.on_lost is not None
    line.on_lost()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (made.gone, made.farewell) == ("client_gone", None)


async def test_only_the_first_reason_to_leave_counts() -> None:
    made, task = await serving(FakeLine())
    farewell = Draining("Bye.", retry_after_s=1)
    made.leave("draining", farewell)
    made.leave("client_gone")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (made.gone, made.farewell, task.cancelling()) == ("draining", farewell, 1)


@pytest.mark.parametrize("whole", [True, False])
async def test_leaving_after_the_end_is_no_leaving(whole: bool) -> None:
    line = FakeLine()
    made = exchange(line)
    await made.body()
    if whole:
        await made.reply(200, [JSON], b"{}")
    else:
        await made.start(200, [JSON], 2)
        await made.finish(b"{}")
    assert line.on_lost is None
    made.leave("client_gone")
    assert made.gone == ""
    await asyncio.sleep(0)  # a cancellation would come here


@pytest.mark.parametrize("whole", [True, False])
async def test_a_caller_who_does_not_take_the_end_of_its_answer_is_cut_off_and_counted(whole: bool) -> None:
    line = FakeLine()
    made = exchange(line)
    await made.body()
    if not whole:
        await made.start(200, [SSE], None)
    line.takes.clear()
    last = made.reply(200, [JSON], b"{}") if whole else made.finish(b"data: [DONE]\n\n")
    ending = asyncio.create_task(last)
    await asyncio.sleep(0)
    made.trip.outcome = "ok"
    made.leave("client_stalled")
    assert (made.trip.outcome, line.aborted) == ("client_stalled", 1)
    line.takes.set()  # as when the connection has ended
    await ending


async def test_the_caller_is_no_longer_watched_once_an_exchange_ends_without_an_answer() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.body()
    made.end()
    assert (line.on_lost, line.aborted) == (None, 0)


async def test_a_caller_who_stalled_is_cut_off_with_what_is_buffered() -> None:
    line = FakeLine()
    made, task = await serving(line)
    made.leave("client_stalled")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.aborted == 0
    made.end()
    assert line.aborted == 1

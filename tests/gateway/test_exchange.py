"""Is a body read within its bounds, an answer sent whole, and a caller's leaving noticed just once?"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.types import Message, Scope, Send

from gateway.errors import (
    BadRequest,
    BodyTooLarge,
    Draining,
    UnsupportedMediaType,
    UploadTooSlow,
    WorkerBroke,
)
from gateway.exchange import CONNECTION, ClientGone, Exchange
from tests.gateway.test_model import Clock, trip

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")
LIMIT = 20  # bytes of a body
TOLD = {b"x-request-id", b"openai-processing-ms"}


class FakeConnection:
    """The server's side of one request. While `takes` is false, the caller's socket is full."""

    def __init__(self) -> None:
        self.upload_stalled = False
        self.takes = True
        self.is_behind_middleware = False
        self.body: bytes | None = None  # where all of it has come already
        self.on_lost: Callable[[], None] | None = None
        self.replies: list[tuple[int, bytes, bytes]] = []
        self.chunks: list[bytes] = []
        self.aborted = 0

    def whole_body(self) -> bytes | None:
        return self.body

    def watch(self, on_lost: Callable[[], None]) -> None:
        self.on_lost = on_lost

    def unwatch(self) -> None:
        self.on_lost = None

    def is_sent_to_by(self, send: Send) -> bool:
        return not self.is_behind_middleware

    def reply(self, status: int, headers: bytes, body: bytes) -> bool:
        if self.takes:
            self.replies.append((status, headers, body))
            self.on_lost = None
        return self.takes

    def chunk(self, data: bytes) -> bool:
        if self.takes:
            self.chunks.append(data)
        return self.takes

    def flush(self) -> None:
        """Nothing is put off here."""

    def abort(self) -> None:
        self.aborted += 1


class Asgi:
    """A scope with its two functions. Messages are given out in order; what is sent is kept."""

    def __init__(self, *messages: Message, headers: Sequence[tuple[bytes, bytes]] = (JSON,), **scope: Any):
        self.connection = FakeConnection()
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "headers": list(headers),
            "extensions": {CONNECTION: self.connection},
        } | scope
        self.messages = list(messages)
        self.sent: list[Message] = []
        self.may_send = asyncio.Event()
        self.may_send.set()

    async def receive(self) -> Message:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: Message) -> None:
        await self.may_send.wait()
        self.sent.append(message)


def part(data: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


def exchange(asgi: Asgi, clock: Clock | None = None) -> Exchange:
    clock = clock or Clock()
    return Exchange(
        asgi.scope, asgi.receive, asgi.send, trip(began=clock()), max_body_bytes=LIMIT, clock=clock
    )


def told(headers: Sequence[tuple[bytes, bytes]] | bytes) -> dict[bytes, bytes]:
    if isinstance(headers, bytes):
        lines = headers.split(b"\r\n")
        assert lines.pop() == b""
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    assert len(dict(headers)) == len(headers)
    return dict(headers)


# In


async def test_a_body_of_one_part_is_given_as_it_came() -> None:
    content = b'{"a": 1}'
    asgi = Asgi(part(content))
    assert await exchange(asgi).body() is content
    assert asgi.connection.on_lost is not None


async def test_a_body_of_many_parts_is_joined() -> None:
    asgi = Asgi(part(b'{"a"', more=True), part(b"", more=True), part(b": 1}"))
    assert await exchange(asgi).body() == b'{"a": 1}'


@pytest.mark.parametrize(
    "value",
    [b"application/json", b"application/json; charset=utf-8", b"APPLICATION/JSON", b" application/json ;a=b"],
)
async def test_json_is_read_under_any_spelling_of_its_type(value: bytes) -> None:
    asgi = Asgi(part(b"{}"), headers=[(b"content-type", value)])
    assert await exchange(asgi).body() == b"{}"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"")],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/jsonx")],
        [(b"content-type", b"multipart/form-data; boundary=application/json")],
        [JSON, (b"content-encoding", b"gzip")],
        [JSON, (b"content-encoding", b"identity, br")],
    ],
)
async def test_any_other_type_and_any_encoding_is_refused_unread(headers: list[tuple[bytes, bytes]]) -> None:
    asgi = Asgi(part(b"{}"), headers=headers)
    with pytest.raises(UnsupportedMediaType):
        await exchange(asgi).body()
    assert len(asgi.messages) == 1


@pytest.mark.parametrize("value", [b"identity", b"Identity"])
async def test_an_encoding_of_none_is_none(value: bytes) -> None:
    asgi = Asgi(part(b"{}"), headers=[JSON, (b"content-encoding", value)])
    assert await exchange(asgi).body() == b"{}"


async def test_a_length_above_the_limit_is_refused_unread() -> None:
    asgi = Asgi(part(b"{}"), headers=[JSON, (b"content-length", b"%d" % (LIMIT + 1))])
    with pytest.raises(BodyTooLarge, match=r"larger than 20 bytes"):
        await exchange(asgi).body()
    assert len(asgi.messages) == 1


@pytest.mark.parametrize("size", [0, 1, LIMIT])
async def test_a_body_of_just_the_limit_is_read(size: int) -> None:
    asgi = Asgi(part(b"x" * size), headers=[JSON, (b"content-length", b"%d" % size)])
    assert len(await exchange(asgi).body()) == size


@pytest.mark.parametrize(
    "parts",
    [[LIMIT + 1], [LIMIT, 1], [1, LIMIT], [7, 7, 7]],
)
async def test_a_body_is_counted_while_it_is_read_and_no_further(parts: list[int]) -> None:
    messages = [part(b"x" * size, more=True) for size in parts]
    asgi = Asgi(*messages, part(b"never read"))
    with pytest.raises(BodyTooLarge):
        await exchange(asgi).body()
    assert asgi.messages == [part(b"never read")]
    assert asgi.connection.on_lost is None


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
async def test_a_caller_who_leaves_while_the_body_is_read_is_gone(before: list[Message]) -> None:
    with pytest.raises(ClientGone):
        await exchange(Asgi(*before, GONE)).body()


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
async def test_a_body_that_comes_to_a_halt_is_refused(before: list[Message]) -> None:
    asgi = Asgi(*before, part(b"", more=True))
    asgi.connection.upload_stalled = True
    with pytest.raises(UploadTooSlow):
        await exchange(asgi).body()


# Leaving


async def serving(asgi: Asgi) -> tuple[Exchange, "asyncio.Task[Exchange]"]:
    """An exchange whose task waits for a worker that does not answer."""
    began = asyncio.get_running_loop().create_future()

    async def serve() -> Exchange:
        made = exchange(asgi)
        await made.body()
        began.set_result(made)
        await asyncio.Event().wait()
        return made

    task = asyncio.create_task(serve())
    return await began, task


async def test_a_caller_who_leaves_ends_the_task_that_serves_it() -> None:
    asgi = Asgi(part(b"{}"))
    made, task = await serving(asgi)
    assert asgi.connection.on_lost is not None
    asgi.connection.on_lost()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (made.gone, made.farewell) == ("client_gone", None)


async def test_only_the_first_reason_to_leave_counts() -> None:
    made, task = await serving(Asgi(part(b"{}")))
    farewell = Draining("Bye.", retry_after_s=1)
    made.leave("draining", farewell)
    made.leave("client_gone")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (made.gone, made.farewell, task.cancelling()) == ("draining", farewell, 1)


async def test_leaving_after_the_end_is_no_leaving() -> None:
    asgi = Asgi(part(b"{}"))
    made = exchange(asgi)
    await made.body()
    await made.start(200, [JSON], 2)
    await made.finish(b"{}")
    assert asgi.connection.on_lost is None
    made.leave("client_gone")
    assert made.gone == ""
    await asyncio.sleep(0)  # a cancellation would come here


async def test_a_caller_who_does_not_take_the_end_of_its_answer_is_cut_off_and_counted() -> None:
    asgi = Asgi(part(b"{}"))
    made = exchange(asgi)
    await made.body()
    await made.start(200, [SSE], None)
    await made.finish(b"data: [DONE]\n\n")
    made.trip.outcome = "ok"
    made.leave("client_stalled")
    assert (made.trip.outcome, asgi.connection.aborted) == ("client_stalled", 1)


async def test_the_caller_is_no_longer_watched_once_an_exchange_ends_without_an_answer() -> None:
    asgi = Asgi(part(b"{}"))
    made = exchange(asgi)
    await made.body()
    made.end()
    assert (asgi.connection.on_lost, asgi.connection.aborted) == (None, 0)


async def test_a_caller_who_stalled_is_cut_off_with_what_is_buffered() -> None:
    asgi = Asgi(part(b"{}"))
    made, task = await serving(asgi)
    made.leave("client_stalled")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asgi.connection.aborted == 0
    made.end()
    assert asgi.connection.aborted == 1


# Out


async def test_a_whole_answer_leaves_in_one_write() -> None:
    asgi, clock = Asgi(), Clock()
    made = exchange(asgi, clock)
    clock.now += 0.5
    await made.start(200, [JSON, (b"x-more", b"1")], 2)
    assert (asgi.sent, asgi.connection.replies) == ([], [])
    await made.finish(b"{}")
    [(status, headers, body)] = asgi.connection.replies
    assert (status, body, made.trip.status) == (200, b"{}", 200)
    assert told(headers) == {
        JSON[0]: JSON[1],
        b"x-more": b"1",
        b"x-request-id": b"req-1",
        b"openai-processing-ms": b"500",
    }
    assert asgi.sent == []


async def test_a_whole_answer_waits_for_a_caller_whose_socket_is_full() -> None:
    asgi = Asgi()
    asgi.connection.takes = False
    made = exchange(asgi)
    await made.start(200, [JSON], 2)
    await made.finish(b"{}")
    head, body = asgi.sent
    assert (head["type"], head["status"]) == ("http.response.start", 200)
    assert told(head["headers"]).keys() == {b"content-type", b"content-length"} | TOLD
    assert told(head["headers"])[b"content-length"] == b"2"
    assert body == {"type": "http.response.body", "body": b"{}", "more_body": False}
    assert asgi.connection.replies == []


@pytest.mark.parametrize("length", [2, None])
async def test_an_answer_passes_through_what_middleware_there_is(length: int | None) -> None:
    asgi = Asgi()
    asgi.connection.is_behind_middleware = True
    made = exchange(asgi)
    await made.start(200, [JSON], length)
    await made.send(b"{")
    await made.finish(b"}")
    assert [of["type"].rpartition(".")[2] for of in asgi.sent] == ["start", "body", "body"]
    assert (asgi.connection.replies, asgi.connection.chunks) == ([], [])


async def test_a_whole_answer_passes_through_middleware_too() -> None:
    asgi = Asgi()
    asgi.connection.is_behind_middleware = True
    made = exchange(asgi)
    await made.start(200, [JSON], 2)
    await made.finish(b"{}")
    assert [of["type"].rpartition(".")[2] for of in asgi.sent] == ["start", "body"]
    assert asgi.connection.replies == []


async def test_an_answer_of_known_length_in_parts_has_its_head_before_its_first_part() -> None:
    asgi = Asgi()
    asgi.connection.takes = False
    made = exchange(asgi)
    await made.start(200, [JSON], 4)
    await made.send(b"{  ")
    await made.finish(b"}")
    assert [(of["type"], of.get("body"), of.get("more_body")) for of in asgi.sent] == [
        ("http.response.start", None, None),
        ("http.response.body", b"{  ", True),
        ("http.response.body", b"}", False),
    ]
    assert told(asgi.sent[0]["headers"])[b"content-length"] == b"4"


async def test_a_stream_has_its_head_at_once_and_no_length() -> None:
    asgi = Asgi()
    made = exchange(asgi)
    await made.start(200, [SSE], None)
    [head] = asgi.sent
    assert told(head["headers"]).keys() == {b"content-type"} | TOLD
    assert made.started
    await made.send(b"data: a\n\n")
    assert asgi.connection.chunks == [b"data: a\n\n"]
    await made.finish(b"data: [DONE]\n\n")
    assert asgi.sent[1:] == [{"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False}]


async def test_how_long_a_caller_takes_nothing_can_be_seen() -> None:
    asgi, clock = Asgi(), Clock()
    made = exchange(asgi, clock)
    seen: list[float | None] = []
    await made.start(200, [SSE], None)
    seen.append(made.sending_since)
    asgi.connection.takes = False
    asgi.may_send.clear()
    sending = asyncio.create_task(made.send(b"data: a\n\n"))
    await asyncio.sleep(0)
    clock.now += 5
    seen.append(made.sending_since)
    asgi.may_send.set()
    await sending
    seen.append(made.sending_since)
    assert seen == [None, clock.now - 5, None]


# Failures


async def test_an_error_before_the_answer_is_told_by_its_status() -> None:
    asgi = Asgi()
    made = exchange(asgi)
    await made.fail(Draining("Later.", retry_after_s=1, detail="for the log"))
    [(status, headers, body)] = asgi.connection.replies
    assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
    assert told(headers).keys() == {b"content-type", b"retry-after", b"retry-after-ms", b"connection"} | TOLD
    assert (made.trip.status, made.trip.outcome, made.trip.detail) == (503, "draining", "for the log")


async def test_an_error_before_the_head_has_left_takes_its_place() -> None:
    asgi = Asgi()
    made = exchange(asgi)
    await made.start(200, [JSON], 500)
    await made.fail(WorkerBroke("reset"))
    [(status, headers, body)] = asgi.connection.replies
    assert (status, made.trip.status) == (502, 502)
    assert json.loads(body) == WorkerBroke("reset").body()
    assert told(headers).keys() == {b"content-type"} | TOLD


async def test_an_error_in_mid_stream_is_the_streams_last_event() -> None:
    asgi = Asgi()
    made = exchange(asgi)
    await made.start(200, [SSE], None)
    await made.send(b"data: a\n\n")
    await made.fail(WorkerBroke("reset"))
    last = asgi.sent[-1]
    assert last["more_body"] is False
    assert last["body"].startswith(b"data: ")
    assert last["body"].endswith(b"\n\n")
    error = WorkerBroke("reset").body()["error"]
    error["message"] += " (request id req-1)"
    assert json.loads(last["body"][6:]) == {"error": error}
    assert (made.trip.status, made.trip.outcome, made.trip.detail) == (200, "worker_failed", "reset")
    assert asgi.connection.aborted == 0


@pytest.mark.parametrize("length", [None, 500])
async def test_an_error_in_the_middle_of_a_plain_answer_cuts_it_short(length: int | None) -> None:
    asgi = Asgi()
    made = exchange(asgi)
    await made.start(200, [JSON], length)
    await made.send(b'{"choices":')
    await made.fail(WorkerBroke("reset"))
    assert asgi.connection.aborted == 1
    assert asgi.connection.chunks == [b'{"choices":']
    assert [of["type"] for of in asgi.sent] == ["http.response.start"]
    assert made.trip.outcome == "worker_failed"
    made.leave("client_gone")  # which the abort brings about
    assert made.gone == ""


async def test_an_error_of_the_caller_is_told_likewise() -> None:
    asgi = Asgi()
    await exchange(asgi).fail(BadRequest("No.", param="n"))
    [(status, _, body)] = asgi.connection.replies
    assert (status, json.loads(body)["error"]["param"]) == (400, "n")

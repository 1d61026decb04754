"""Does a caller's line through ASGI say in messages what an exchange says in words?"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.types import Message, Scope

from gateway.asgi import CONNECTION, AsgiLine
from gateway.errors import GatewayError, UploadTooSlow
from gateway.exchange import ClientGone
from gateway.headers import lines

JSON = (b"content-type", b"application/json")
LIMIT = 20  # bytes of a body


class FakeConnection:
    """The server's side of one request."""

    def __init__(self) -> None:
        self.upload_failure: GatewayError | None = None
        self.on_lost: Callable[[], None] | None = None
        self.aborted = 0
        self.is_behind = False

    def watch(self, on_lost: Callable[[], None]) -> None:
        self.on_lost = on_lost

    def unwatch(self) -> None:
        self.on_lost = None

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

    def line(self) -> AsgiLine:
        return AsgiLine(self.scope, self.receive, self.send)


def part(data: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


async def test_a_line_has_the_headers_by_name_and_the_task_that_serves_it() -> None:
    line = Asgi(headers=[JSON, (b"a", b"1"), (b"a", b"2")]).line()
    assert line.fields == {JSON[0]: JSON[1], b"a": b"1, 2"}
    assert line.task is asyncio.current_task()


async def test_a_line_is_behind_while_its_connection_is() -> None:
    asgi = Asgi()
    line = asgi.line()
    told = [line.is_behind]
    asgi.connection.is_behind = True
    assert [*told, line.is_behind] == [False, True]


async def test_what_the_server_told_besides_is_taken_out_of_the_scope() -> None:
    asgi = Asgi()
    asgi.line()
    assert asgi.scope["extensions"] == {}, "or they would hold each other"


# In


@pytest.mark.parametrize(
    "parts",
    [
        [part(b'{"a": 1}')],
        [part(b'{"a"', more=True), part(b"", more=True), part(b": 1}")],
        [part(b'{"a": 1}', more=True), part(b"")],
        [{"type": "http.request", "body": b'{"a": 1}'}],
    ],
)
async def test_a_body_of_any_number_of_parts_is_read(parts: list[Message]) -> None:
    assert await Asgi(*parts).line().body(LIMIT) == b'{"a": 1}'


@pytest.mark.parametrize("size", [0, 1, LIMIT])
async def test_a_body_of_just_the_limit_is_read(size: int) -> None:
    assert await Asgi(part(b"x" * size)).line().body(LIMIT) == b"x" * size


@pytest.mark.parametrize("parts", [[LIMIT + 1], [LIMIT, 1], [1, LIMIT], [7, 7, 7]])
async def test_a_body_is_counted_while_it_is_read_and_no_further(parts: list[int]) -> None:
    asgi = Asgi(*(part(b"x" * size, more=True) for size in parts), part(b"never read"))
    assert await asgi.line().body(LIMIT) is None
    assert asgi.messages == [part(b"never read")]


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
async def test_a_caller_who_leaves_while_the_body_is_read_is_gone(before: list[Message]) -> None:
    with pytest.raises(ClientGone):
        await Asgi(*before, GONE).line().body(LIMIT)


@pytest.mark.parametrize("before", [[], [part(b"{", more=True)]])
async def test_a_body_that_comes_to_a_halt_is_refused(before: list[Message]) -> None:
    asgi = Asgi(*before, part(b"", more=True))
    asgi.connection.upload_failure = UploadTooSlow("")
    with pytest.raises(UploadTooSlow):
        await asgi.line().body(LIMIT)


async def test_a_caller_who_leaves_after_a_halt_is_gone() -> None:
    asgi = Asgi(GONE)
    asgi.connection.upload_failure = UploadTooSlow("")
    with pytest.raises(ClientGone):
        await asgi.line().body(LIMIT)


# Out


HEAD = lines([JSON, (b"x-more", b"a: b")])


@pytest.mark.parametrize("body", [b"{}", b""])
async def test_a_whole_answer_is_a_head_with_its_length_and_a_body(body: bytes) -> None:
    asgi = Asgi()
    await asgi.line().reply(404, HEAD, body)
    headers = [JSON, (b"x-more", b"a: b"), (b"content-length", b"%d" % len(body))]
    assert asgi.sent == [
        {"type": "http.response.start", "status": 404, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    ]


@pytest.mark.parametrize(("length", "more"), [(None, []), (3, [(b"content-length", b"3")])])
async def test_an_answer_in_parts_has_a_length_where_that_is_known(
    length: int | None, more: list[tuple[bytes, bytes]]
) -> None:
    asgi = Asgi()
    line = asgi.line()
    await line.start(200, HEAD, length)
    await line.send(b"ab")
    await line.finish(b"c")
    assert asgi.sent == [
        {"type": "http.response.start", "status": 200, "headers": [JSON, (b"x-more", b"a: b"), *more]},
        {"type": "http.response.body", "body": b"ab", "more_body": True},
        {"type": "http.response.body", "body": b"c", "more_body": False},
    ]


async def test_there_is_no_way_out_that_needs_no_waiting() -> None:
    assert Asgi().line().pipe(lambda is_full: None) is None


# What the server does


async def test_leaving_and_cutting_off_are_the_servers() -> None:
    asgi = Asgi()
    line = asgi.line()
    left: list[str] = []
    line.watch(lambda: left.append("left"))
    lost = asgi.connection.on_lost
    assert lost is not None
    lost()
    line.unwatch()
    line.abort()
    assert (left, vars(asgi.connection)["on_lost"], asgi.connection.aborted) == (["left"], None, 1)

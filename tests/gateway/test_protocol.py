"""Does a connection keep its deadlines and bounds, and tell an exchange what ASGI cannot?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway import settings
from gateway.errors import GatewayError
from gateway.exchange import CONNECTION, Exchange
from gateway.protocol import MAX_HEAD_BYTES, GatewayProtocol, Handle
from gateway.server import listen, running
from tests.gateway.test_model import Clock, trip

SOON_S = 0.05  # of deadlines that a test lets pass
BIG = 4 * 1024 * 1024  # bytes, more than a socket buffers
JSON = (b"content-type", b"application/json")

Serve = Callable[[Exchange, Handle], Awaitable[None]]


class Answer:
    """One answer off the wire."""

    def __init__(self, head: bytes, body: bytes) -> None:
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/json"
        assert len(self.headers["x-request-id"]) == 32
        return str(json.loads(self.body)["error"]["code"])


class Line:
    """A caller's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self) -> Answer:
        """The next answer, whose head must name its length."""
        head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
        assert head.startswith(b"HTTP/1.1 ")
        answer = Answer(head, b"")
        answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        return answer

    async def is_closed(self) -> bool:
        """Wait for the end; whether nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def hang_up(self) -> None:
        self.writer.close()


class House:
    """A server whose application lends each request to `serve` as an exchange."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.exchanges: list[Exchange] = []
        self.endings: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self.lines: list[Line] = []
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["extensions"][CONNECTION]
        exchange = Exchange(scope, receive, send, trip(), max_body_bytes=2 * BIG, clock=Clock())
        self.exchanges.append(exchange)
        ending: BaseException | None = None
        try:
            await self.serve(exchange, connection)
        except GatewayError as error:
            ending = error
            await exchange.fail(error)
        except asyncio.CancelledError as error:
            assert exchange.gone
            ending = error
        finally:
            exchange.end()
            self.endings.put_nowait(ending)

    async def call(self) -> Line:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        self.lines.append(line)
        return line


async def echo(exchange: Exchange, connection: Handle) -> None:
    body = await exchange.body()
    await exchange.start(200, [JSON], len(body))
    await exchange.finish(body)


@asynccontextmanager
async def house(serve: Serve = echo, **rules: Any) -> AsyncIterator[House]:
    made = House(serve)
    with listen("port", "127.0.0.1", 0) as listener:
        made.port = listener.getsockname()[1]
        async with running([(made, listener)], settings.Server(**rules)):
            try:
                yield made
            finally:
                for line in made.lines:
                    line.hang_up()
                    with contextlib.suppress(ConnectionError):
                        await line.writer.wait_closed()


def post(body: bytes = b"{}", *more: bytes, length: int | None = None, method: bytes = b"POST") -> bytes:
    size = len(body) if length is None else length
    lines = [b"host: h", b"content-type: application/json", b"content-length: %d" % size, *more]
    return method + b" /x HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body


async def waiting(exchange: Exchange, connection: Handle) -> None:
    await exchange.body()
    await asyncio.Event().wait()


# Answers


async def test_one_connection_serves_request_after_request() -> None:
    async with house() as at:
        line = await at.call()
        for body in (b"{}", b"[1]"):
            line.say(post(body))
            answer = await line.hear()
            assert (answer.status, answer.body) == (200, body)
            assert answer.headers["x-request-id"] == "req-1"
            assert {"date", "openai-processing-ms"} <= answer.headers.keys()
            assert not {"connection", "server"} & answer.headers.keys()


async def test_requests_sent_at_once_are_answered_in_order() -> None:
    async with house() as at:
        line = await at.call()
        line.say(post(b"1") + post(b"2") + post(b"3"))
        assert [(await line.hear()).body for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_request_may_come_byte_by_byte() -> None:
    async with house() as at:
        line = await at.call()
        for byte in post(b"{}"):
            line.say(bytes([byte]))
            await line.writer.drain()
        assert (await line.hear()).body == b"{}"


async def test_a_caller_who_wants_the_connection_closed_gets_it_closed() -> None:
    async with house() as at:
        line = await at.call()
        line.say(post(b"{}", b"connection: close"))
        assert (await line.hear()).headers["connection"] == "close"
        assert await line.is_closed()


async def test_an_answer_to_head_has_no_body() -> None:
    async with house() as at:
        line = await at.call()
        line.say(post(method=b"HEAD"))
        head = await line.reader.readuntil(b"\r\n\r\n")
        line.say(post(b"[2]"))
        following = await line.hear()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert (following.status, following.body) == (200, b"[2]")


async def test_a_send_of_its_own_is_told_from_one_of_a_middleware() -> None:
    async def ask(exchange: Exchange, connection: Handle) -> None:
        async def wrapped(message: Message) -> None:
            raise AssertionError("nothing is sent")

        assert connection.is_sent_to_by(exchange._send)
        assert not connection.is_sent_to_by(wrapped)
        await echo(exchange, connection)

    async with house(ask) as at:
        line = await at.call()
        line.say(post())
        await line.hear()
        assert await at.endings.get() is None


async def test_parts_of_a_stream_leave_as_they_come() -> None:
    go_on = asyncio.Event()

    async def stream(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        await exchange.start(200, [(b"content-type", b"text/event-stream")], None)
        await exchange.send(b"data: a\n\n")
        await go_on.wait()
        await exchange.finish(b"data: b\n\n")

    async with house(stream) as at:
        line = await at.call()
        line.say(post())
        head = await line.reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert await line.reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: a\n\n\r\n"
        go_on.set()
        assert await line.reader.readuntil(b"0\r\n\r\n") == b"9\r\ndata: b\n\n\r\n0\r\n\r\n"
        line.say(post())
        assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


# Heads


async def test_a_head_that_does_not_come_in_time_is_refused() -> None:
    async with house(header_timeout_s=SOON_S) as at:
        line = await at.call()
        line.say(b"POST /x HTTP/1.1\r\nhost:")
        answer = await line.hear()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert answer.headers["connection"] == "close"
        assert await line.is_closed()
        assert at.exchanges == []


async def test_a_connection_on_which_nothing_is_said_is_closed_without_a_word() -> None:
    async with house(header_timeout_s=SOON_S) as at:
        assert await (await at.call()).is_closed()


async def test_a_later_head_has_the_same_deadline_and_an_idle_connection_has_none() -> None:
    async with house(header_timeout_s=SOON_S) as at:
        idle, slow = await at.call(), await at.call()
        for line in (idle, slow):
            line.say(post())
            await line.hear()
        slow.say(b"POST /x")
        assert (await slow.hear()).code == "request_timeout"
        silent = await at.call()
        assert await silent.is_closed()  # by now the time is up
        idle.say(post(b"[1]"))
        assert (await idle.hear()).body == b"[1]"


async def test_a_head_without_end_is_refused() -> None:
    async with house() as at:
        line = await at.call()
        line.say(b"POST /x HTTP/1.1\r\nx-filler: " + b"x" * (MAX_HEAD_BYTES + 1))
        answer = await line.hear()
        assert (answer.status, answer.code) == (431, "head_too_large")
        assert await line.is_closed()


async def test_a_large_head_within_the_bound_is_read() -> None:
    async with house() as at:
        line = await at.call()
        for _ in range(2):  # the bound is for each
            line.say(post(b"{}", b"x-filler: " + b"x" * (MAX_HEAD_BYTES - 1000)))
            assert (await line.hear()).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS on a plain port\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"POST /x HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_in_json(data: bytes) -> None:
    async with house() as at:
        line = await at.call()
        line.say(data)
        answer = await line.hear()
        assert (answer.status, answer.code) == (400, "invalid_http")
        assert answer.headers["connection"] == "close"
        assert await line.is_closed()
        assert at.exchanges == []


async def test_nonsense_after_an_answer_is_refused_likewise() -> None:
    async with house() as at:
        line = await at.call()
        line.say(post())
        await line.hear()
        line.say(b"NONSENSE\r\n\r\n")
        assert (await line.hear()).code == "invalid_http"


async def test_nonsense_during_an_answer_ends_the_connection_and_is_never_taken_for_the_answer() -> None:
    async with house(waiting) as at:
        line = await at.call()
        line.say(post() + b"NONSENSE\r\n\r\n")
        assert await line.is_closed()


# Bodies


async def test_a_body_that_comes_to_a_halt_is_refused() -> None:
    async with house(body_timeout_s=SOON_S) as at:
        line = await at.call()
        line.say(post(b"{", length=100))
        answer = await line.hear()
        assert answer.status == 408
        assert json.loads(answer.body)["error"]["code"] == "request_timeout"
        assert await line.is_closed()  # what else of the body would come is no request


async def test_a_body_that_nobody_wants_to_the_end_does_not_keep_the_connection() -> None:
    async def refuse(exchange: Exchange, connection: Handle) -> None:
        await exchange.start(401, [JSON], 2)
        await exchange.finish(b"{}")

    async with house(refuse, body_timeout_s=SOON_S) as at:
        line = await at.call()
        line.say(post(b"{", length=100))
        assert (await line.hear()).status == 401
        assert await line.is_closed()


async def test_a_refused_body_that_still_comes_is_discarded_and_the_connection_goes_on() -> None:
    async def refuse(exchange: Exchange, connection: Handle) -> None:
        await exchange.start(401, [JSON], 2)
        await exchange.finish(b"{}")

    async with house(refuse) as at:
        line = await at.call()
        line.say(post(b"x" * 1000, length=BIG))
        assert (await line.hear()).status == 401
        line.say(b"x" * (BIG - 1000) + post())
        assert (await line.hear()).status == 401


async def test_a_body_that_waits_for_us_has_all_the_time_it_needs() -> None:
    may_read = asyncio.Event()

    async def late(exchange: Exchange, connection: Handle) -> None:
        if len(at.exchanges) == 1:
            await may_read.wait()
        await echo(exchange, connection)

    async with house(late, body_timeout_s=SOON_S) as at:
        patient = await at.call()
        patient.say(post(b"x" * BIG))
        while not at.exchanges:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.001)
        slow = await at.call()
        slow.say(post(b"{", length=100))
        assert (await slow.hear()).status == 408  # by now the time is up
        may_read.set()
        assert (await patient.hear()).body == b"x" * BIG


# Leaving


async def test_a_caller_who_hangs_up_is_noticed_while_nothing_is_sent() -> None:
    is_watched = asyncio.Event()

    async def wait(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        is_watched.set()
        await asyncio.Event().wait()

    async with house(wait) as at:
        line = await at.call()
        line.say(post())
        await is_watched.wait()
        line.hang_up()
        assert isinstance(await at.endings.get(), asyncio.CancelledError)
        assert at.exchanges[0].gone == "client_gone"


async def test_a_caller_who_hangs_up_after_a_large_body_is_noticed_too() -> None:
    is_watched = asyncio.Event()

    async def wait(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        is_watched.set()
        await asyncio.Event().wait()

    async with house(wait) as at:
        line = await at.call()
        line.say(post(b"x" * BIG))
        await is_watched.wait()
        line.hang_up()
        assert isinstance(await at.endings.get(), asyncio.CancelledError)


async def test_who_is_watched_too_late_has_already_left() -> None:
    async def late(exchange: Exchange, connection: Handle) -> None:
        while (await exchange._receive())["type"] != "http.disconnect":
            pass
        left: list[str] = []
        connection.watch(lambda: left.append("left"))
        assert left == ["left"]
        assert connection.reply(200, b"", b"{}")  # nobody is there to take it: that is no reason to wait
        assert connection.chunk(b"x") is False  # no stream has begun

    async with house(late) as at:
        line = await at.call()
        line.say(post())
        line.hang_up()
        assert await at.endings.get() is None


async def test_a_full_socket_is_told_and_emptied_by_the_caller() -> None:
    full = asyncio.Event()

    async def flood(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        await exchange.start(200, [], None)
        while connection.chunk(b"x" * 65536):
            pass
        assert not connection.reply(200, b"", b"")
        full.set()
        await exchange.finish(b"end")

    async with house(flood) as at:
        line = await at.call()
        line.say(post())
        await full.wait()
        heard = b""
        while not heard.endswith(b"\r\n3\r\nend\r\n0\r\n\r\n"):
            heard = heard[-100:] + await line.reader.read(BIG)
        assert await at.endings.get() is None


async def test_a_body_of_known_length_is_not_sent_in_chunks() -> None:
    async def parts(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        await exchange.start(200, [JSON], 4)
        await exchange.send(b"[1")
        assert not connection.chunk(b"xx")
        await exchange.finish(b",]")

    async with house(parts) as at:
        line = await at.call()
        line.say(post())
        assert (await line.hear()).body == b"[1,]"


async def test_an_aborted_connection_ends_at_once() -> None:
    async def abort(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        connection.abort()

    async with house(abort) as at:
        line = await at.call()
        line.say(post())
        assert await line.is_closed()


async def test_a_stream_to_a_caller_who_left_goes_nowhere() -> None:
    async def stream(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        await exchange.start(200, [], None)
        connection.unwatch()
        line.hang_up()
        while (await exchange._receive())["type"] != "http.disconnect":
            pass
        assert connection.chunk(b"x")
        await exchange.finish(b"y")

    async with house(stream) as at:
        line = await at.call()
        line.say(post())
        assert await at.endings.get() is None
        assert at.exchanges[0].gone == ""


# Idle connections


async def test_an_idle_connection_is_closed_when_its_time_is_over() -> None:
    async with house(keep_alive_s=1) as at:
        line = await at.call()
        line.say(post())
        assert (await line.hear()).status == 200
        async with asyncio.timeout(10):
            assert await line.is_closed()


async def test_a_connection_in_use_is_not_idle_and_its_time_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, release = asyncio.Event(), asyncio.Event()
    check_idle = GatewayProtocol._check_idle

    def check_and_tell(protocol: GatewayProtocol) -> None:
        check_idle(protocol)
        looked.set()

    async def serve(exchange: Exchange, connection: Handle) -> None:
        body = await exchange.body()
        if body == b"[1]":
            await release.wait()
        await exchange.start(200, [JSON], len(body))
        await exchange.finish(body)
        protocols.append(connection._protocol)

    protocols: list[GatewayProtocol] = []
    monkeypatch.setattr(GatewayProtocol, "_check_idle", check_and_tell)
    async with house(serve, keep_alive_s=1) as at, asyncio.timeout(10):
        line = await at.call()
        line.say(post())
        await line.hear()
        line.say(post(b"[1]"))
        await looked.wait()  # the first answer's time is over, and the second is being made
        release.set()
        assert (await line.hear()).body == b"[1]"
        check_idle(protocols[1])  # as a timer would that was set for the first answer
        assert not protocols[1].transport.is_closing()
        assert await line.is_closed()


# Writes that are put off


async def test_what_was_put_off_leaves_before_the_end_of_the_stream() -> None:
    async def in_one_turn(exchange: Exchange, connection: Handle) -> None:
        await exchange.body()
        await exchange.start(200, [(b"content-type", b"text/event-stream")], None)
        await exchange.send(b"one")
        await exchange.finish(b"two")

    async with house(in_one_turn) as at, asyncio.timeout(10):
        line = await at.call()
        line.say(post())
        head = await line.reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert await line.reader.readuntil(b"0\r\n\r\n") == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_an_answer_that_was_put_off_is_not_lost_when_the_server_stops() -> None:
    async def stop_at_once(exchange: Exchange, connection: Handle) -> None:
        await echo(exchange, connection)
        connection._protocol.shutdown()

    async with house(stop_at_once) as at, asyncio.timeout(10):
        line = await at.call()
        line.say(post(b"[1]"))
        assert (await line.hear()).body == b"[1]"
        assert await line.is_closed()


async def test_an_answer_that_was_put_off_comes_before_a_refusal_of_what_follows() -> None:
    async def refuse_at_once(exchange: Exchange, connection: Handle) -> None:
        await echo(exchange, connection)
        connection._protocol.send_400_response("")

    async with house(refuse_at_once) as at, asyncio.timeout(10):
        line = await at.call()
        line.say(post(b"[1]"))
        assert (await line.hear()).body == b"[1]"
        assert (await line.hear()).code == "invalid_http"

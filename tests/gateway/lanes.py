"""How do tests meet a server on both of its lanes? In a house that lends them each request as an exchange."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from gateway import settings
from gateway.asgi import AsgiLine
from gateway.call import Call
from gateway.callers import Callers
from gateway.errors import GatewayError
from gateway.exchange import ClientGone, Exchange, Line
from gateway.protocol import GatewayProtocol
from gateway.protocol import Serve as Direct
from gateway.server import listen, running
from tests.gateway.test_model import Clock, trip

SOON_S = 0.05  # of deadlines that a test lets pass
BIG = 4 * 1024 * 1024  # bytes, more than a socket buffers
LIMIT = 2 * BIG  # bytes of a body
JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream")

Serve = Callable[[Exchange, Line], Awaitable[None]]

on_both_lanes = pytest.mark.parametrize("lane", ["asgi", "direct"])


class Answer:
    """One answer off the wire."""

    def __init__(self, head: bytes) -> None:
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split()[1])
        pairs = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
        self.headers = dict(pairs)
        assert len(self.headers) == len(pairs), "each is told once"
        self.body = b""

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/json"
        return str(json.loads(self.body)["error"]["code"])

    @property
    def lane(self) -> str:
        return self.headers["x-lane"]


class Visitor:
    """A caller's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear_head(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
        assert head.startswith(b"HTTP/1.1 ")
        return Answer(head)

    async def hear(self) -> Answer:
        """The next answer, whose head tells how its body ends."""
        answer = await self.hear_head()
        if "content-length" in answer.headers:
            assert "transfer-encoding" not in answer.headers
            answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        else:
            assert answer.headers["transfer-encoding"] == "chunked"
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                answer.body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
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
    """A server whose application lends each request to `serve` as an exchange, by way of its lane."""

    def __init__(self, lane: str, serve: Serve) -> None:
        self.direct: Mapping[bytes, Direct] = {b"/x": self._serve_directly} if lane == "direct" else {}
        self.serve = serve
        self.lanes: list[str] = []  # of the requests so far
        self.exchanges: list[Exchange] = []
        self.protocols: list[GatewayProtocol] = []  # likewise
        self.endings: asyncio.Queue[type[BaseException] | None] = asyncio.Queue()  # by what, if not well
        self.visitors: list[Visitor] = []
        self.callers = Callers()
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = AsgiLine(scope, receive, send)
        self.protocols.append(line._connection._protocol)  # type: ignore[attr-defined]
        await self._lend("asgi", line)

    async def _serve_directly(self, call: Call) -> None:
        self.protocols.append(cast(GatewayProtocol, call._wire))
        await self._lend("direct", call)

    async def _lend(self, lane: str, line: Line) -> None:
        self.lanes.append(lane)
        exchange = Exchange(line, trip(), max_body_bytes=LIMIT, clock=Clock())
        self.exchanges.append(exchange)
        ending: type[BaseException] | None = None
        try:
            await self.serve(exchange, line)
        except GatewayError as error:
            ending = type(error)
            await exchange.fail(error)
        except ClientGone:
            ending = ClientGone
        except asyncio.CancelledError:
            assert exchange.gone
            ending = asyncio.CancelledError
        except Exception as error:
            ending = type(error)  # such as what a test itself asserts; the server would only log it
            raise
        finally:
            exchange.end()
            self.endings.put_nowait(ending)

    async def visit(self) -> Visitor:
        visitor = Visitor(*await asyncio.open_connection("127.0.0.1", self.port))
        self.visitors.append(visitor)
        return visitor

    async def began(self, count: int = 1) -> None:
        """Wait until so many requests have begun."""
        while len(self.exchanges) < count:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)


@asynccontextmanager
async def house(lane: str, serve: Serve, **rules: Any) -> AsyncIterator[House]:
    made = House(lane, serve)
    with listen("port", "127.0.0.1", 0) as listener:
        made.port = listener.getsockname()[1]
        async with running([(made, listener)], settings.Server(**rules), callers=made.callers):
            try:
                async with asyncio.timeout(
                    20
                ):  # or a test that waits for what never comes would not say where
                    yield made
            finally:
                for visitor in made.visitors:
                    visitor.hang_up()
                    with contextlib.suppress(ConnectionError):
                        await visitor.writer.wait_closed()


def post(
    body: bytes = b"{}",
    *more: bytes,
    length: int | None = None,
    method: bytes = b"POST",
    target: bytes = b"/x",
    version: bytes = b"1.1",
) -> bytes:
    size = len(body) if length is None else length
    lines = [b"host: h", b"content-type: application/json", b"content-length: %d" % size, *more]
    return b"%b %b HTTP/%b\r\n%b\r\n\r\n%b" % (method, target, version, b"\r\n".join(lines), body)


async def echo(exchange: Exchange, line: Line) -> None:
    """The body, whole, and which lane it took."""
    body = await exchange.body()
    await exchange.reply(200, [JSON, (b"x-lane", b"direct" if isinstance(line, Call) else b"asgi")], body)


async def refuse(exchange: Exchange, line: Line) -> None:
    """An answer to whoever it is, unheard."""
    await exchange.reply(401, [JSON], b"{}")


async def waiting(exchange: Exchange, line: Line) -> None:
    """A worker that does not answer."""
    await exchange.body()
    await asyncio.Event().wait()

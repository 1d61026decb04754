"""Whatever a caller sends: does the server end or answer, and attend to nothing that h11 would refuse?"""

import asyncio
import re
from typing import NamedTuple, cast

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.asgi import AsgiLine
from gateway.call import Call
from gateway.errors import GatewayError
from gateway.exchange import ClientGone, Exchange, Line
from gateway.headers import by_name
from gateway.model import Fields
from gateway.outbox import Outbox
from gateway.protocol import GatewayProtocol
from tests.fuzz.cuts import cuts
from tests.gateway.test_model import Clock, trip
from tests.gateway.upstream.transports import FakeTransport

WORDS = (
    b"\r\n",
    b"POST /x HTTP/1.1\r\n",
    b"GET / HTTP/1.1\r\n",
    b"Host: h\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Length: 2\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\n",
    b"Upgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"Content-Encoding: gzip\r\n",
    b"2\r\n{}\r\n0\r\n\r\n",
    b";a=b",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\n",
    b"\r",
    b"\x00",
    b" ",
    b"\t",
    b"\x80",
    b"+",
    b"0x",
)

DIRECT = b"/x"
LIMIT = 100_000  # bytes of a body
QUIET_TURNS = 8  # of the loop: a request takes fewer from one step to the next
ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[!-9;-~]+: [^\r\n]*\r\n)*)\r\n")
BESIDE_PATH = re.compile(rb"\A[a-z][a-z0-9+.-]*://[^/?#]*|\??(#.*)?\Z", re.IGNORECASE)
SPACES = re.compile(rb"\A([A-Z-]+) +([^ \r\n]+) +HTTP")  # several are taken for one
SPACE = re.compile(rb"[ \t]+(?=,|\Z)")
LENGTH = re.compile(rb"content-length: (\d+)\r\n")


class Attended(NamedTuple):
    """A request whose body has come."""

    method: bytes
    target: bytes
    fields: Fields
    body: bytes


class Wire(FakeTransport):
    """A caller's connection, up to the kernel."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.reading = asyncio.Event()
        self.reading.set()
        self.ended = self.lost = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading.clear()

    def resume_reading(self) -> None:
        self.reading.set()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self.close()

    def lose(self) -> None:
        if not self.lost:
            self.closing = self.lost = True
            self.protocol.connection_lost(None)


class Server:
    """One connection to an application that echoes, on both lanes."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []  # methods of the requests whose heads have come
        self.attended: list[Attended] = []
        self.failures: list[Exception] = []
        own = {"outbox": Outbox(), "direct": {DIRECT: self._serve_directly}}
        config = uvicorn.Config(
            self,
            http=type("Protocol", (GatewayProtocol,), own),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        config.load()
        self.protocol = cast("type[GatewayProtocol]", config.http_protocol_class)(
            config=config, server_state=ServerState(), app_state={}
        )
        self.wire = Wire(self.protocol)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        await self._serve(AsgiLine(scope, receive, send), scope["method"].encode(), target)

    async def _serve_directly(self, call: Call) -> None:
        await self._serve(call, b"POST", DIRECT)

    async def _serve(self, line: Line, method: bytes, target: bytes) -> None:
        self.begun.append(method)
        exchange = Exchange(line, trip(), max_body_bytes=LIMIT, clock=Clock())
        try:
            body = await line.body(LIMIT) or b""
            self.attended.append(Attended(method, target, stripped(line.fields), body))
            await exchange.reply(200, [], body)
        except GatewayError as error:
            await exchange.fail(error)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - kept, and told of by the check
            self.failures.append(error)
        finally:
            exchange.end()

    async def hear(self, pieces: list[bytes]) -> None:
        """All of them, as far as the connection lasts; then the caller leaves."""
        self.protocol.connection_made(self.wire)
        for piece in pieces:
            if not self.wire.reading.is_set():
                await self._settle()
            if self.wire.closing or not self.wire.reading.is_set():
                break
            self.protocol.data_received(piece)
            await asyncio.sleep(0)
        await self._settle()
        self.answered = b"".join(self.wire.written)
        self.closed = self.wire.closing or self.wire.ended
        self.wire.lose()
        await self._settle()
        assert not self.protocol.tasks

    async def _settle(self) -> None:
        quiet, count = 0, -1
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            now = len(self.wire.written) + len(self.attended)
            quiet, count = (quiet + 1 if now == count else 0), now


def stripped(fields: Fields) -> Fields:
    """Without white space behind values, which llhttp leaves there, and offers that are not taken up."""
    return {name: SPACE.sub(b"", value) for name, value in fields.items() if name != b"upgrade"}


def check(data: bytes) -> None:
    """Raises AssertionError."""
    asyncio.run(_check(data))


async def _check(data: bytes) -> None:
    escaped: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: escaped.append(context))
    theirs = read_with_h11(data)
    for pieces in cuts(data):
        server = Server()
        await server.hear(pieces)
        assert server.failures == []
        assert escaped == []
        assert server.attended == theirs[: len(server.attended)]
        _check_answers(server)


def _check_answers(server: Server) -> None:
    """Each is one by HTTP's rules, and none is too many."""
    statuses, left, methods = [], server.answered, iter(server.begun)
    while left:
        found = ANSWER.match(left)
        assert found, left
        status, length = int(found[1]), LENGTH.search(found[2])
        left = left[found.end() :]
        if status != 100:
            assert length
            left = left[0 if next(methods, b"") == b"HEAD" else int(length[1]) :]
            statuses.append(status)
    # What follows a request and is no HTTP ends the connection, the answer to the request with it.
    assert statuses.count(200) == len(server.attended) or server.closed
    assert statuses.count(200) <= len(server.attended)
    assert set(statuses) <= {200, 400, 405, 431}


def read_with_h11(data: bytes) -> list[Attended]:
    """The requests in it, until one is refused or the last, as our application is told of them."""
    found: list[Attended] = []
    while data := data.lstrip(b"\r\n"):  # HTTP has empty lines before a request ignored
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=4 * LIMIT)
        connection.receive_data(SPACES.sub(rb"\1 \2 HTTP", data))
        request = _request(connection)
        if request is not None:
            found.append(request)
        if request is None:
            break
        data, _ = connection.trailing_data
        if connection.their_state is h11.MUST_CLOSE:
            break
    return found


def _request(connection: h11.Connection) -> Attended | None:
    body = b""
    try:
        head = connection.next_event()
        while type(head) is h11.Request:
            match event := connection.next_event():
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage():
                    fields = stripped(by_name(list(head.headers)))
                    return Attended(head.method, _path(head.target), fields, body)
                case _:
                    return None
    except h11.ProtocolError:
        return None
    return None


def _path(target: bytes) -> bytes:
    """What ASGI has of a target: neither scheme nor host, nor a fragment, which no target should have."""
    return BESIDE_PATH.sub(b"", target)

"""How do the tests feed a connection by hand, without a network?"""

from gateway.errors import WorkerError
from gateway.upstream import Answer
from gateway.upstream.connection import Connection, Timeouts
from tests.gateway.upstream.transports import FakeTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
PATIENT = Timeouts(connect_s=60, first_byte_s=60, gap_s=60)
BRIEF_S = 0.02
HASTY = Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=BRIEF_S)


class Basin:
    """A sink that keeps each part with the chunks it came in; it has enough with the one that ends so."""

    def __init__(self, enough: bytes = b"never") -> None:
        self.parts: list[tuple[bytes, bytes | None]] = []
        self.enough = enough

    def __call__(self, data: bytes, chunks: bytes | None) -> bool:
        self.parts.append((data, chunks))
        return not data.endswith(self.enough)

    @property
    def body(self) -> bytes:
        return b"".join(data for data, _ in self.parts)


def opened(timeouts: Timeouts = PATIENT) -> tuple[Connection, FakeTransport, list[Connection]]:
    """Those connections that are lost are in the list."""
    lost: list[Connection] = []
    connection, transport = Connection("w:1", timeouts, lost.append), FakeTransport()
    connection.connection_made(transport)
    return connection, transport, lost


def asked(timeouts: Timeouts = PATIENT) -> tuple[Connection, FakeTransport]:
    """With a request under way."""
    connection, transport, _ = opened(timeouts)
    connection.send(b"HEAD", [b"body"], 4)
    return connection, transport


def answering(first: bytes = b"", timeouts: Timeouts = PATIENT) -> tuple[Connection, FakeTransport]:
    """With the head of an answer and its first chunk, which is taken."""
    connection, transport = asked(timeouts)
    connection.data_received(HEAD + chunk(first or b"first"))
    assert connection.take() == (first or b"first")
    return connection, transport


def leased(connection: Connection) -> tuple[Answer, list[bool]]:
    """Its answer, and of each time that it is given back whether the connection may be used again."""
    given_back: list[bool] = []

    def give_back(connection: Connection) -> None:
        given_back.append(connection.reusable)
        if connection.reusable:
            connection.park()
        else:
            connection.abort()

    return Answer(connection, give_back), given_back


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def failure_of(connection: Connection) -> WorkerError:
    """What ends the exchange, arrivals apart."""
    while True:
        try:
            await connection.arrival()
        except WorkerError as failure:
            return failure


async def time_passes(brief_s: float = 4 * BRIEF_S) -> None:
    """So long, by the clock of another connection, that several gaps of a hasty one have passed."""
    other, _ = asked(Timeouts(connect_s=60, first_byte_s=brief_s, gap_s=60))
    await failure_of(other)

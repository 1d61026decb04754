"""How does a request reach a worker? One client for each worker: request, connection, retry, end."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from gateway.errors import ConnectTimeout, WorkerUnreachable
from gateway.model import Headers
from gateway.outbox import Write, write_now
from gateway.upstream.answer import Answer
from gateway.upstream.connection import Connection, StaleConnection, Timeouts
from gateway.upstream.pool import IdlePool

_SET_HERE = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})


class WorkerClient:
    """HTTP/1.1 client of one origin, `http(s)://host[:port][/prefix]`; raises ValueError for other URLs.

    `headers` go with each request. There is no limit on connections: who may call is decided before.
    """

    def __init__(
        self,
        url: str,
        *,
        timeouts: Timeouts,
        idle_s: float,
        max_age_s: float,
        tls: ssl.SSLContext | None = None,
        headers: Headers = (),
        write: Write = write_now,
    ) -> None:
        """`write` sends a request that is small; by default at once."""
        parts = urlsplit(url)
        host = parts.hostname
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
            raise ValueError(f"not a worker's URL: {url!r} (want http(s)://host[:port][/prefix])")
        if parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError(f"not a worker's URL: {url!r} (no query, no fragment, ASCII only)")
        host.encode("idna")  # as the look-up will do; its error is a ValueError
        secure = parts.scheme == "https"
        self._host = host
        self._port = parts.port or (443 if secure else 80)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._peer = f"{host}:{self._port}"
        self._prefix = parts.path.rstrip("/")
        self._constant_head = _lines([(b"host", parts.netloc.encode("ascii")), *headers])
        self._timeouts = timeouts
        self._write = write
        self._pool = IdlePool(idle_s=idle_s, max_age_s=max_age_s)
        self._busy = 0
        self._open: set[Connection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._all_lost = asyncio.Event()
        self._closed = False

    @property
    def idle(self) -> int:
        """Connections that wait to be used again."""
        return len(self._pool)

    @property
    def busy(self) -> int:
        """Exchanges that are under way, those that still connect included."""
        return self._busy

    async def post(
        self,
        path: str,
        headers: Headers,
        body: Sequence[bytes | memoryview],
        on_sent: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Send a request and wait for the head of its answer. Views in `body` are of bytes.

        `headers` may not hold host or framing. Raises WorkerUnreachable if no connection came about,
        WorkerBroke if it ended too soon or brought no HTTP, WorkerTimeout after `first_byte_s`. A reused
        connection that ends without a byte is the worker's idle limit at work: tried once more, on a
        fresh one. If cancelled, the connection is closed. `on_sent` is called once there is a connection and
        the request is on its way: from then on the worker may have begun.
        """
        if not _SET_HERE.isdisjoint(dict(headers)):
            raise ValueError("headers of framing are set by the client")
        body_bytes = sum(map(len, body))
        head = b"POST %b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            (self._prefix + path).encode("ascii"),
            self._constant_head,
            _lines(headers),
            body_bytes,
        )
        self._busy += 1
        connection = self._pool.take()
        try:
            if connection is not None:
                try:
                    return await self._exchange(connection, head, body, body_bytes, on_sent)
                except StaleConnection:
                    connection = None  # it has ended; once more, on a fresh one
            connection = await self._connect()
            return await self._exchange(connection, head, body, body_bytes, on_sent)
        except BaseException:
            self._busy -= 1
            if connection is not None:
                connection.abort()
            raise

    def give_up(self, silent_s: float) -> None:
        """The worker is gone: end those exchanges in which nothing has come for longer."""
        for connection in tuple(self._open):
            if connection.silent_s > silent_s:
                connection.abort("the worker takes no connections any more, and nothing comes on this one")

    async def aclose(self) -> None:
        """End all connections, also those in use, and wait until they are gone."""
        self._closed = True
        self._pool.clear()
        for attempt in self._connecting:
            if not attempt.expired():
                attempt.reschedule(0)
        for connection in tuple(self._open):
            connection.abort()
        if self._open:
            await self._all_lost.wait()

    async def _exchange(
        self,
        connection: Connection,
        head: bytes,
        body: Sequence[bytes | memoryview],
        body_bytes: int,
        on_sent: Callable[[], None],
    ) -> Answer:
        connection.send(head, body, body_bytes)
        on_sent()
        while not connection.response.head_complete:
            await connection.arrival()
        return Answer(connection, self._give_back)

    async def _connect(self) -> Connection:
        if self._closed:
            raise WorkerUnreachable(f"{self._peer}: the client is closed")
        connection = Connection(self._peer, self._timeouts, self._forget, self._write)
        self._open.add(connection)
        self._all_lost.clear()
        attempt = asyncio.timeout(self._timeouts.connect_s)
        self._connecting.add(attempt)
        try:
            async with attempt:
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, self._host, self._port, ssl=self._tls
                )
        except BaseException as error:
            connection.abort()  # an orderly end of TLS would wait for the worker
            self._forget(connection)  # uvloop does not tell of a loss that comes as early as this
            if isinstance(error, OSError):  # time-outs, failed look-ups and failed TLS are OSErrors, too
                kind = ConnectTimeout if isinstance(error, TimeoutError) else WorkerUnreachable
                raise kind(f"{self._peer}: {error!r}") from error
            raise
        finally:
            self._connecting.discard(attempt)
        return connection

    def _give_back(self, connection: Connection) -> None:
        self._busy -= 1
        if connection.reusable:
            self._pool.put(connection)
        else:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._pool.discard(connection)
        self._open.discard(connection)
        if not self._open:
            self._all_lost.set()


def _lines(headers: Headers) -> bytes:
    """Header lines; refuses what would break out of its line."""
    text = b"".join([b"%b: %b\r\n" % header for header in headers])
    if text.count(b"\n") != len(headers) or text.count(b"\r") != len(headers):
        raise ValueError("a line break in a header")
    return text

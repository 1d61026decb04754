"""How do tests get a worker that does exactly what they say? A scripted HTTP server on a real socket.

async def script(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event({"choices": []})
    reply.reset()

async with FakeWorker(script) as worker:
    ...  # talk to worker.url
    await worker.closed_by_peer(1)

The script answers POST requests; probes (GET) are answered beside it, as vLLM would, and are counted
apart, so a fleet that polls does not disturb a test. `plain_answer` does both kinds of completions.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import httptools

from tests.vllm_answers import (
    MODEL,
    PROMPT_TOKENS,
    answer_of,
    answer_probe,
    compact,
    framed,
    plain_answer,
    response_head,
    sse_event,
)

__all__ = [
    "MODEL",
    "PROMPT_TOKENS",
    "FakeWorker",
    "Received",
    "Reply",
    "Script",
    "answer_of",
    "answer_probe",
    "compact",
    "framed",
    "plain_answer",
    "response_head",
    "sse_event",
]


@dataclass
class Received:
    """One request. Header names are in lower case; `body` is empty until the whole of it has come."""

    connection: int  # which connection brought it, counted from 1
    method: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body, read as vLLM reads it: of duplicate keys the last one counts."""
        return json.loads(self.body)


class Reply:
    """The worker's side of one exchange. Sends raise ConnectionResetError once the peer has left."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.sent_bytes = 0  # what the kernel has taken

    async def send(self, data: bytes) -> None:
        """Raw bytes; returns when the kernel has taken them all."""
        await self._connection.send(data)
        self.sent_bytes += len(data)

    async def json(
        self, content: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        body = compact(content)
        head = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.send(response_head(status, head) + body)

    async def stream_head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        kind = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        await self.send(response_head(status, {**kind, **(headers or {})}))

    async def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body."""
        await self.send(framed(data))

    async def event(self, content: object) -> None:
        """One server-sent event in one chunk; bytes go as they are, all else as compact JSON."""
        await self.chunk(sse_event(content))

    async def done(self) -> None:
        """[DONE] and the end of the body in one write, as vLLM does."""
        await self.send(framed(sse_event(b"[DONE]")) + b"0\r\n\r\n")

    def reset(self) -> None:
        """End the connection with RST; what was sent may or may not arrive."""
        self._connection.reset()

    def close(self) -> None:
        """End the connection with FIN, after all that was sent."""
        self._connection.close()

    def stop_reading(self) -> None:
        """Leave the rest of the request in the kernel. A leaving peer is then no longer noticed."""
        self._connection.transport.pause_reading()

    async def peer_closed(self) -> None:
        """Wait until the peer has ended the connection, by FIN or RST."""
        await self._connection.worker.changes.until(lambda: self._connection.peer_left)


Script = Callable[[Received, Reply], Awaitable[None]]


class FakeWorker:
    """A worker on a free port of 127.0.0.1, for the length of an `async with`.

    Of a list of scripts each answers one request, the last all further ones. With `at_head` a script
    starts when the head is in, not the body. An exception of a script fails the test at the end.
    """

    def __init__(
        self,
        script: Script | Sequence[Script] | None = None,
        *,
        probe: Script | None = None,
        at_head: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        given = script or plain_answer
        self.scripts: Sequence[Script] = [given] if callable(given) else given
        self.probe = probe or answer_probe
        self.at_head = at_head
        self.requests: list[Received] = []  # POST only
        self.probes: list[Received] = []
        self.changes = _Changes()
        self.connections: list[_Connection] = []  # all there ever were
        self.failures: list[BaseException] = []
        self._tls = tls
        self._server: asyncio.Server

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def connections_open(self) -> int:
        """Connections that live and have brought no probe."""
        return sum(not c.lost and not c.peer_left and not c.is_probe for c in self.connections)

    async def keeps(self, count: int) -> None:
        """Wait until no more than so many connections are open that are not for probes."""
        await self.changes.until(lambda: self.connections_open <= count)

    async def received(self, count: int) -> None:
        """Wait until `count` requests have come (their heads, if `at_head`)."""
        await self.changes.until(lambda: len(self.requests) >= count)

    async def connected(self, count: int) -> None:
        """Wait until `count` connections have been accepted."""
        await self.changes.until(lambda: len(self.connections) >= count)

    async def closed_by_peer(self, count: int) -> None:
        """Wait until the peer has ended `count` connections; those of probes do not count."""
        await self.changes.until(
            lambda: sum(c.peer_left and not c.is_probe for c in self.connections) >= count
        )

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        if self.failures:
            raise AssertionError("a script of the fake worker failed") from self.failures[0]

    def stop_listening(self) -> None:
        """Refuse new connections; those that are open stay so."""
        self._server.close()

    async def stop(self) -> None:
        """Refuse new connections and end all that are open."""
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()
        await self.changes.until(lambda: all(c.lost for c in self.connections))
        tasks = [task for connection in self.connections for task in connection.tasks]
        for task in tasks:
            task.cancel()  # a script may wait for what will never come
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def script_for(self, request: Received) -> Script:
        if request.method != "POST":
            self.probes.append(request)
            return self.probe
        self.requests.append(request)
        return self.scripts[min(len(self.requests), len(self.scripts)) - 1]


class _Changes:
    """Lets tests wait for a condition on the fake's state without polling."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def notify(self) -> None:
        for is_met, future in self._waiting:
            if not future.done() and is_met():
                future.set_result(None)

    async def until(self, is_met: Callable[[], bool]) -> None:
        if is_met():
            return
        waiting = (is_met, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting[1]
        finally:
            self._waiting.remove(waiting)


class _Connection(asyncio.Protocol):
    def __init__(self, worker: FakeWorker) -> None:
        self.worker = worker
        self.transport: asyncio.Transport
        self.tasks: list[asyncio.Task[None]] = []
        self.is_probe = self.peer_left = self.lost = self.ended_here = False
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(0)  # so that a send waits for the kernel
        self.parser = httptools.HttpRequestParser(self)
        self.worker.connections.append(self)
        self.number = len(self.worker.connections)
        self.worker.changes.notify()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as failure:
            self.worker.failures.append(failure)
            self.transport.abort()

    def eof_received(self) -> None:
        self.peer_left = not self.ended_here
        self.worker.changes.notify()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.peer_left = self.peer_left or (exc is not None and not self.ended_here)
        self._may_write.set()
        self.worker.changes.notify()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def on_message_begin(self) -> None:
        self.request = Received(self.number)
        self.body = bytearray()

    def on_url(self, url: bytes) -> None:
        self.request.target += url.decode("ascii")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.request.headers[name.decode("ascii").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.request.method = self.parser.get_method().decode("ascii")
        if self.worker.at_head:
            self._begin()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.request.body = bytes(self.body)
        if not self.worker.at_head:
            self._begin()

    def _begin(self) -> None:
        script = self.worker.script_for(self.request)
        self.is_probe = self.is_probe or self.request.method != "POST"
        self.tasks.append(asyncio.create_task(self._run(script, self.request)))
        self.worker.changes.notify()

    async def _run(self, script: Script, request: Received) -> None:
        try:
            await script(request, Reply(self))
        except ConnectionResetError:
            self.transport.abort()  # the peer left while the script was sending
        except Exception as failure:  # noqa: BLE001 - kept, and raised when the worker ends
            self.worker.failures.append(failure)
            self.transport.abort()

    async def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)
            await self._may_write.wait()
        if self.lost or self.peer_left:
            raise ConnectionResetError

    def close(self) -> None:
        self.ended_here = True
        self.transport.close()

    def reset(self) -> None:
        self.ended_here = True
        linger = struct.pack("ii", 1, 0)  # on, 0 s
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()

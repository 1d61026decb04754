"""How does a simulated worker speak vLLM's API? HTTP/1.1 in and out, straight on asyncio's transports."""

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import httptools

from benchmarks.simulator import asked as bodies
from benchmarks.simulator import series, wire
from benchmarks.simulator.asked import Asked, Model, Refused
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.request import Event, Limits
from benchmarks.simulator.worker import Worker

BACKLOG = 2048
CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
NOT_FOUND = wire.response(404, b'{"detail":"Not Found"}')
NOT_ALLOWED = wire.response(405, b'{"detail":"Method Not Allowed"}')
UNREADABLE = wire.response(400, b"Invalid HTTP request received.", "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Options:
    """Of one simulated worker."""

    model: Model
    limits: Limits
    costs: Costs
    speed: float = 1.0  # virtual seconds in a real one
    max_queued: int | None = None  # unfinished requests, as --max-num-queued-reqs counts them


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, worker: Worker, model: Model, open_ones: set["Connection"]) -> None:
        self._worker = worker
        self._model = model
        self._open_ones = open_ones
        self._transport: asyncio.Transport
        self._current: Asked | None = None  # that is not yet answered
        self._answer: wire.Answer
        self._keep_alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self)
        if self._current is not None:
            self._worker.abort(self._current.request)

    def abort(self) -> None:
        """What has not been sent is lost."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(UNREADABLE)
            self._transport.close()

    def on_message_begin(self) -> None:
        self._target = b""
        self._body = bytearray()
        self._identity = ""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._identity = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._current is not None:  # pipelined: no caller of vLLM's does that
            self._transport.close()
            return
        self._keep_alive = self._parser.should_keep_alive()
        path = self._target.partition(b"?")[0]
        if path in (CHAT, COMPLETIONS):
            self._generate(path == CHAT)
        else:
            self._send(self._probe(path))

    def _probe(self, path: bytes) -> bytes:
        if path not in (b"/health", b"/v1/models", b"/metrics"):
            return NOT_FOUND
        if self._parser.get_method() != b"GET":
            return NOT_ALLOWED
        if path == b"/metrics":
            return wire.response(200, self._worker.metrics, series.CONTENT_TYPE)
        if path == b"/v1/models":
            return wire.models(self._model.name, self._model.max_model_len, int(time.time()))
        return wire.response(200)

    def _generate(self, chat: bool) -> None:
        if self._parser.get_method() != b"POST":
            self._send(NOT_ALLOWED)
            return
        try:
            asked = bodies.read(bytes(self._body), chat, self._model)
            self._worker.submit(asked, self._heard)
        except Refused as refused:
            self._send(wire.refusal(refused))
            return
        identity = self._identity or uuid.uuid4().hex
        self._answer = wire.Answer(asked, self._model.name, identity, int(time.time()))
        self._current = asked

    def _heard(self, event: Event) -> None:
        asked = cast(Asked, self._current)
        if event.finished:
            self._current = None
        if not asked.stream:
            if event.finished:
                self._send(self._answer.whole(event.cached_tokens))
            return
        opening = self._answer.opening() if event.tokens == 1 else b""
        if event.finished:
            self._send(opening + self._answer.ending(event.cached_tokens))
        else:
            self._transport.write(opening + self._answer.token)

    def _send(self, data: bytes) -> None:
        """The end of a response."""
        self._transport.write(data)
        if not self._keep_alive:
            self._transport.close()


@contextlib.asynccontextmanager
async def serving(options: Options, listener: socket.socket) -> AsyncIterator[None]:
    """One worker on this socket, which is closed at the end together with all connections."""
    engine = Engine(options.limits, options.costs)
    metrics = series.Series(options.model.name, engine)
    loop = asyncio.get_running_loop()
    worker = Worker(loop, engine, metrics, options.speed, options.max_queued)
    open_ones: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(worker, options.model, open_ones), sock=listener, backlog=BACKLOG
    )
    try:
        yield
    finally:
        worker.stop()
        server.close()
        for connection in list(open_ones):
            connection.abort()
        await server.wait_closed()

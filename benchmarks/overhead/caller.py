"""Who calls at a given rate, or opens many streams at once? Blocking sockets, so that timers are exact.

The event loops' timers tick in milliseconds, which is longer than most answers take here.
"""

import gc
import math
import random
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import quantiles
from urllib.parse import urlsplit

import httptools

from benchmarks.footprint.streams import TokenCounter
from benchmarks.overhead.invalid import Invalid

PIECE_BYTES = 64 * 1024
CONNECT_LIMIT_S = 10.0
STALL_LIMIT_S = 30.0  # without an answer, or a piece of one
STREAM_END = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of requests at a given rate, from when each was due to the end of its answer, in seconds."""

    takes_s: Sequence[float]
    late_s: Sequence[float]  # how long after it was due each was sent

    @property
    def p50_ms(self) -> float:
        return _percentile(self.takes_s, 50) * 1e3

    @property
    def p99_ms(self) -> float:
        return _percentile(self.takes_s, 99) * 1e3

    @property
    def late_p99_ms(self) -> float:
        return _percentile(self.late_s, 99) * 1e3


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


class Connection:
    """One that is kept; one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.due_s = 0.0  # of the request that is under way
        self.socket = socket.create_connection((parts.hostname, parts.port), CONNECT_LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes, tokens: int, *, stream: bool) -> None:
        """tokens: that its answer has to have."""
        self._missing = tokens
        self._stream = stream
        self._ended = False
        self._counter = TokenCounter()
        self._tail = b""
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # what the parser calls for each chunk, at the price of C
        self._parser = httptools.HttpResponseParser(self)
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Take what has come, at least something. Whether the answer is there as a whole. Raises Invalid."""
        data = self.socket.recv(PIECE_BYTES)
        if not data:
            raise Invalid("a connection was closed instead of an answer")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Invalid(f"an answer is not HTTP: {error}") from error
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._missing -= self._counter.feed(body)
        self._tail = (self._tail + body)[-len(STREAM_END) :]
        if not self._ended:
            return False
        if (status := self._parser.get_status_code()) != 200:
            raise Invalid(f"a request was answered with {status}")
        if self._missing or (self._stream and self._tail != STREAM_END):
            raise Invalid(f"an answer lacks {self._missing} tokens, or its end")
        return True

    def on_message_complete(self) -> None:
        self._ended = True


def at_rate(
    url: str, request: bytes, tokens: int, per_s: float, seconds: float, *, connections: int, seed: int
) -> Latencies:
    """Requests that come at random (Poisson), whether or not others are done. Raises Invalid or OSError.

    One that finds all connections in use waits, and its time runs.
    """
    chance = random.Random(seed)
    takes_s: list[float] = []
    late_s: list[float] = []
    due_s = 0.0  # of the next, which may wait for a connection; infinite after the last
    # select() takes microseconds, epoll() milliseconds
    with _connected(url, connections, selectors.SelectSelector()) as (idle, selector), _without_collection():
        began_s = time.perf_counter()
        while due_s < math.inf or len(idle) < connections:
            now_s = time.perf_counter() - began_s
            while due_s <= now_s and idle:
                connection = idle.pop()
                connection.due_s = due_s
                late_s.append(now_s - due_s)
                connection.send(request, tokens, stream=False)
                due_s += chance.expovariate(per_s)
                if due_s >= seconds:
                    due_s = math.inf
            wait_s = max(due_s - now_s, 0.0) if idle else math.inf
            for connection in _answered(selector, min(wait_s, STALL_LIMIT_S)):
                takes_s.append(time.perf_counter() - began_s - connection.due_s)
                idle.append(connection)
            if now_s > seconds + STALL_LIMIT_S:
                raise Invalid(f"requests at {per_s:.0f}/s were not answered in time")
    return Latencies(takes_s, late_s)


def at_once(url: str, request: bytes, tokens: int, streams: int) -> float:
    """So many streams of so many tokens each, all to their end. Returns how many seconds they took.

    Raises Invalid or OSError.
    """
    with _connected(url, streams, selectors.DefaultSelector()) as (idle, selector), _without_collection():
        began_s = time.perf_counter()
        for connection in idle:
            connection.send(request, tokens, stream=True)
        left = streams
        while left:
            left -= len(_answered(selector, STALL_LIMIT_S, or_stalled=True))
        return time.perf_counter() - began_s


def _answered(
    selector: selectors.BaseSelector, wait_s: float, *, or_stalled: bool = False
) -> list[Connection]:
    """Those whose answer is now there. or_stalled: raise Invalid if nothing comes at all."""
    ready = selector.select(wait_s)
    if or_stalled and not ready:
        raise Invalid(f"no stream went on for {wait_s:.0f} s")
    return [key.data for key, _ in ready if key.data.receive()]


@contextmanager
def _connected(
    url: str, count: int, selector: selectors.BaseSelector
) -> Iterator[tuple[list[Connection], selectors.BaseSelector]]:
    with ExitStack() as stack:
        stack.enter_context(selector)
        made: list[Connection] = []
        for _ in range(count):
            connection = Connection(url)
            stack.enter_context(connection.socket)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            made.append(connection)
        yield made, selector


@contextmanager
def _without_collection() -> Iterator[None]:
    """A collection of garbage would be in somebody's latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""What does a caller see of a stream? A client so light that it is not itself what delays tokens."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from benchmarks.footprint.connecting import address, connect_all
from benchmarks.footprint.worker import CHAT_PATH, TOKEN

PIECE_BYTES = 256 * 1024  # of an upload, between two looks at whether the gateway takes it
_TOKEN = TOKEN.encode()


class RequestFailed(Exception):
    """The gateway did not answer as it should. The text says what came instead."""


class Gaps:
    """The longest time between two tokens, in seconds."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s: float | None = None

    def arrival(self, at_s: float) -> None:
        if self._last_s is not None:
            self.longest_s = max(self.longest_s, at_s - self._last_s)
        self._last_s = at_s

    def restart(self) -> None:
        """Forget all gaps but the one that is going on."""
        self.longest_s = 0.0


class TokenCounter:
    """How many tokens are in the pieces of a body, wherever it was cut?"""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> int:
        """How many were completed by this piece."""
        seen = self._tail + data
        self._tail = seen[1 - len(_TOKEN) :]  # too short to hold a whole one, so none is counted twice
        return seen.count(_TOKEN)


class Stream(asyncio.Protocol):
    """One request on a connection of its own, and what has come of its answer."""

    def __init__(self, request: bytes, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tokens = 0
        self.gaps = Gaps()
        self.lost = asyncio.get_running_loop().create_future()
        self._request = request
        self._clock = clock
        self._counter = TokenCounter()
        self._answer = b""  # kept only where it is a refusal
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    async def reaches(self, tokens: int) -> None:
        """Wait until that many have come in all. Raises RequestFailed if the answer ends before."""
        if self.tokens < tokens and not self.lost.done():
            self._wanted = tokens
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.tokens < tokens:
            said = f": {self._answer.decode(errors='replace')}" if self._answer else ""
            raise RequestFailed(f"a stream ended after {self.tokens} tokens{said}")

    def close(self) -> None:
        """Hang up, if it ever was connected."""
        if self._transport is not None:
            self._transport.abort()
        elif not self.lost.done():
            self.lost.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._answer += data
        elif new := self._counter.feed(data):
            self.gaps.arrival(self._clock())
            self.tokens += new
            if self.tokens >= self._wanted:
                self._wake()

    def on_message_complete(self) -> None:
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():  # done: whoever waited has been cancelled
            self._waiter.set_result(None)


@asynccontextmanager
async def open_streams(count: int, url: str, key: str, body: bytes) -> AsyncIterator[list[Stream]]:
    """So many, each with its first token; all are hung up with the block."""
    async with asked_streams(count, url, key, body) as streams:
        await asyncio.gather(*(stream.reaches(1) for stream in streams))
        yield streams


@asynccontextmanager
async def asked_streams(count: int, url: str, key: str, body: bytes) -> AsyncIterator[list[Stream]]:
    """So many, of which nothing may have come yet; all are hung up with the block."""
    request = request_head(url, key, len(body)) + body
    streams = [Stream(request) for _ in range(count)]
    try:
        await connect_all(streams, url)
        yield streams
    finally:
        for stream in streams:
            stream.close()
        await asyncio.gather(*(stream.lost for stream in streams))


async def reach(streams: list[Stream], more_tokens: int) -> None:
    """Wait until each stream has got so many more. Raises RequestFailed."""
    await asyncio.gather(*(stream.reaches(stream.tokens + more_tokens) for stream in streams))


async def upload(url: str, key: str, body: bytes) -> None:
    """Send a request that is not streamed on a new connection. Raises RequestFailed unless it gets 200."""
    reader, writer = await asyncio.open_connection(*address(url))
    try:
        writer.write(request_head(url, key, len(body), b"connection: close\r\n"))
        for start in range(0, len(body), PIECE_BYTES):
            writer.write(body[start : start + PIECE_BYTES])
            await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RequestFailed(f"an upload was answered with {answer[:500]!r}")


def request_head(url: str, key: str, body_bytes: int, more: bytes = b"") -> bytes:
    """The head of a chat request. more: further header lines."""
    return (
        b"POST %b HTTP/1.1\r\nhost: %b\r\nauthorization: Bearer %b\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n%b\r\n"
        % (CHAT_PATH, urlsplit(url).netloc.encode(), key.encode(), body_bytes, more)
    )


def chat(model: str, tokens: int, content: object = "Go on.", *, stream: bool) -> bytes:
    """The body of a chat request."""
    asked: dict[str, Any] = {"model": model, "max_tokens": tokens, "stream": stream}
    return json.dumps(asked | {"messages": [{"role": "user", "content": content}]}).encode()


def image_chat(model: str, body_bytes: int) -> bytes:
    """A chat about a made-up image, so large that the body has this size, or up to three bytes less."""

    def body(image: str) -> bytes:
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
        return chat(model, 1, [part], stream=False)

    room_bytes = body_bytes - len(body(""))
    return body(base64.b64encode(random.Random(0).randbytes(room_bytes // 4 * 3)).decode("ascii"))

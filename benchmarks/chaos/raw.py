"""Callers with a socket of their own, who see every byte: patient ones, slow ones, and such as leave."""

import asyncio
import json
import time
from typing import Any

import httptools

from benchmarks.chaos.calls import GAVE_UP, LEFT, Call, Wish

READ_BYTES = 4096
SLOW_BYTES = 256  # that a slow reader takes at once
PATIENCE_S = 90.0


class _Left(Exception):
    """The caller has what it wanted, or no more patience."""


class _Answer:
    """What the parser finds goes into the call."""

    def __init__(self, call: Call) -> None:
        self.is_whole = False
        self._call = call
        self._lines = b""
        self._body = b""
        self._tokens = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"x-request-id":
                self._call.answered_id = value.decode("latin-1")
            case b"x-gateway-degraded":
                self._call.degraded = value.decode("latin-1")
            case b"x-gateway-worker":
                self._call.worker = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._call.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._call.status != 200 or not self._call.wish.stream:
            self._body += data
            return
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self._event(line.removeprefix(b"data: "))

    def on_message_complete(self) -> None:
        self.is_whole = True
        if self._call.status != 200:
            self._call.error = _error(self._body)
        elif not self._call.wish.stream:
            self._call.body, self._call.done = self._body, True

    def _event(self, payload: bytes) -> None:
        call = self._call
        if payload == b"[DONE]":
            call.done = True
            return
        said = json.loads(payload)
        if "error" in said:
            call.error = said["error"]
            return
        call.usages += bool(said.get("usage"))
        for choice in said["choices"]:
            self._choice(choice)
        if call.wish.leaves_after_tokens is not None and self._tokens >= call.wish.leaves_after_tokens:
            raise _Left

    def _choice(self, choice: dict[str, Any]) -> None:
        call = self._call
        text = choice["delta"].get("content", "") if call.wish.chat else choice["text"]
        if text:
            call.first_at = call.first_at or time.time()
            call.text += text
            self._tokens += 1
        call.finish_reason = choice["finish_reason"] or call.finish_reason


def _error(body: bytes) -> dict[str, Any] | None:
    """The error object in a body; None if there is none."""
    try:
        found = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, dict) else None


async def ask(wish: Wish, key: str, replica: int, port: int) -> Call:
    """Make one call, to whatever end it comes."""
    body = json.dumps(wish.body()).encode()
    head = (
        f"POST {wish.path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        f"x-request-id: {wish.id}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    call = Call(wish, "raw", replica, time.time(), attempts=[wish.id])
    await send(call, head.encode() + body, port)
    return call


async def send(call: Call, request: bytes, port: int) -> None:
    """Send it as it is, on a connection of its own, and note what comes of it."""
    leaves_after_s = call.wish.leaves_after_s
    try:
        async with asyncio.timeout(PATIENCE_S if leaves_after_s is None else leaves_after_s):
            await _exchange(call, request, port)
    except _Left:
        call.broke = LEFT
    except TimeoutError:
        call.broke = GAVE_UP if leaves_after_s is None else LEFT
    except (OSError, httptools.HttpParserError) as error:
        call.broke = _named(error)
    call.ended_at = time.time()


def _named(error: Exception) -> str:
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, _Left):
        return LEFT
    return f"refused: {error}" if isinstance(error, ConnectionRefusedError) else repr(error)


async def _exchange(call: Call, request: bytes, port: int) -> None:
    most = SLOW_BYTES if call.wish.pause_s else READ_BYTES
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=most)
    answer = _Answer(call)
    try:
        writer.write(request)
        while not answer.is_whole:
            await asyncio.sleep(call.wish.pause_s)
            if not (received := await reader.read(most)):
                raise ConnectionError("it ended early")
            answer.feed(received)
    finally:
        writer.transport.abort()

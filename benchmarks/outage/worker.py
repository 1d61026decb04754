"""What stands in for vLLM? A worker in this process that streams at its pace and knows who was there."""

import asyncio
import contextlib
import json
import re
from types import TracebackType
from typing import Any, Self

from benchmarks.footprint.worker import CHAT_PATH, Words, response
from benchmarks.outage.visits import Visits

BACKLOG = 1024
MODEL = "steady"
_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class CountingWorker:
    """`async with`: serves on a free port of 127.0.0.1.

    The tag of a request is its last message. interval_s: between two tokens of a stream; an answer that is
    not streamed comes at once.
    """

    def __init__(self, interval_s: float) -> None:
        self.visits = Visits()
        self._interval_s = interval_s
        self._words = Words(MODEL)
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=BACKLOG)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the gateway hung up
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = _length.search(head)
                    body = await reader.readexactly(int(length[1]) if length else 0)
                    await self._answer(head.split()[1], body, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer(self, path: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == CHAT_PATH:
            asked = json.loads(body)  # of two members with one name the last counts, as in vLLM
            with self.visits.visit(asked["messages"][-1]["content"]):
                await self._chat(asked, writer)
        elif path == b"/health":
            writer.write(response(b""))
        elif path == b"/v1/models":
            writer.write(self._words.models)
        else:
            writer.write(response(b'{"detail":"Not Found"}', b"404 Not Found"))

    async def _chat(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        tokens = asked["max_tokens"]
        if not asked.get("stream"):
            writer.write(self._words.plain(tokens))
            return
        writer.write(self._words.opening)
        for _ in range(tokens - 1):
            writer.write(self._words.token)
            await writer.drain()  # raises OSError once the gateway has hung up
            await asyncio.sleep(self._interval_s)
        with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        usage = self._words.usage(tokens) if with_usage else b""
        writer.write(self._words.last_token + usage + self._words.ending)

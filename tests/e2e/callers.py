"""How does a caller behave that says every byte itself? A connection to the gateway, for tests of one."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.conftest import KEY, MODEL
from tests.fakes import PROMPT_TOKENS, compact

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
READ_BYTES = 4096  # a caller that does not read takes little more
TOKENS = 8  # the answer of the fake worker

# Token ids are counted, not estimated, so charges can be told in advance.
QUESTION: dict[str, Any] = {"model": MODEL, "prompt": list(range(PROMPT_TOKENS)), "max_tokens": TOKENS}
STREAMED: dict[str, Any] = {**QUESTION, "stream": True}
COST = PROMPT_TOKENS + TOKENS


class Caller:
    """One connection, for the length of an `async with`.

    receive_bytes: bounds what the kernel takes for a caller that does not read.
    """

    def __init__(self, url: str, *, receive_bytes: int | None = None) -> None:
        place = urlsplit(url)
        self._address = (place.hostname, place.port)
        self._receive_bytes = receive_bytes

    async def __aenter__(self) -> Self:
        plug = socket.socket()
        if self._receive_bytes is not None:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        plug.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plug, self._address)
        self._reader, self._writer = await asyncio.open_connection(sock=plug, limit=READ_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self._writer.write(data)

    def ask(self, body: object, path: str = COMPLETIONS, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole request."""
        content = body if isinstance(body, bytes) else compact(body)
        self.say(head_of(path, {"content-length": str(len(content)), **(headers or {})}) + content)

    async def until(self, mark: bytes) -> bytes:
        """All up to and with these bytes."""
        return await self._reader.readuntil(mark)

    async def rest(self) -> bytes:
        """All until the gateway ends the connection."""
        return await self._reader.read()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of an answer."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = [line.partition(": ") for line in lines if line]
        return int(first.split(" ")[1]), {name: value for name, _, value in headers}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer that tells its length."""
        status, headers = await self.head()
        return status, headers, await self.exactly(int(headers["content-length"]))

    async def exactly(self, size: int) -> bytes:
        """So many bytes."""
        return await self._reader.readexactly(size)

    @property
    def may_speak(self) -> bool:
        """The connection has not ended yet, as far as is known."""
        return not self._writer.is_closing()

    def say_no_more(self) -> None:
        """End what is said with FIN, and go on hearing."""
        self._writer.write_eof()

    @property
    def port(self) -> int:
        """The caller's own port."""
        port: int = self._writer.get_extra_info("sockname")[1]
        return port

    def leave(self) -> None:
        """End the connection with FIN."""
        self._writer.close()

    def reset(self) -> None:
        """End the connection with RST."""
        plug: Any = self._writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def sockets(*, to: int, state: str = "") -> int:
    """How many sockets that a process holds have this port of 127.0.0.1 as their peer.

    state: as Linux numbers them, 02 for those that wait for a connection; any if left out.
    """
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    held = [line for line in lines if line[9] != "0"]  # the number of its file
    return sum(line[2] == f"0100007F:{to:04X}" and line[3].startswith(state) for line in held)


def head_of(path: str, headers: Mapping[str, str], method: str = "POST") -> bytes:
    """The head of a request by the known key; headers of the same name are replaced."""
    usual = {"host": "gateway", "authorization": f"Bearer {KEY}", "content-type": "application/json"}
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in {**usual, **headers}.items())]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")

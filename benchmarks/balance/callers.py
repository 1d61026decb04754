"""Who answers? Connections so plain that they are not themselves what is measured."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

WHO = re.compile(rb"x-process: (\d+)\r\nx-pid: (\d+)\r\n")
SHORT, STREAM = b"/", b"/stream"
TIMEOUT_S = 5.0


class NotAnswered(Exception):
    """The processes did not answer as they should."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of which process an answer came, and how long it took, connecting included."""

    process: int
    pid: int
    took_s: float


class Caller:
    """One connection. `ask` again only after a short answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: bytes) -> Answer:
        """Returns once the answer has begun. Raises NotAnswered."""
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                head = await self._head(path)
        except (OSError, EOFError) as error:  # a timeout too
            raise NotAnswered(f"a caller got no answer: {error!r}") from error
        if (who := WHO.search(head)) is None:
            raise NotAnswered(f"a caller was answered with {head!r}")
        return Answer(int(who[1]), int(who[2]), time.perf_counter() - began_s)

    async def _head(self, path: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(b"GET %b HTTP/1.1\r\nhost: here\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        if path == SHORT:
            await reader.readexactly(2)
        return head

    def close(self) -> None:
        """Hang up, if it ever was connected."""
        if self._streams is not None:
            _, writer = self._streams
            writer.transport.abort()


class Crowd:
    """All callers of one measurement; leaving the context hangs them up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._callers: list[Caller] = []

    async def __aenter__(self) -> "Crowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        for caller in self._callers:
            caller.close()

    def come(self, count: int) -> list[Caller]:
        """New ones, not yet connected."""
        new = [Caller(self.port) for _ in range(count)]
        self._callers += new
        return new


async def at_once(callers: Sequence[Caller], path: bytes) -> list[Answer]:
    return await asyncio.gather(*(caller.ask(path) for caller in callers))


async def in_turn(callers: Sequence[Caller], path: bytes, pause_s: float) -> list[Answer]:
    answers = []
    for caller in callers:
        answers.append(await caller.ask(path))
        await asyncio.sleep(pause_s)
    return answers


def by_process(answers: Sequence[Answer]) -> Counter[int]:
    return Counter(answer.process for answer in answers)

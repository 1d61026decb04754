"""What does one caller see? Requests on connections of their own, so that every process gets some."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools

from benchmarks.footprint.streams import request_head

READ_BYTES = 65536
REMAINING = "x-ratelimit-remaining-requests"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came. Times are those of `time.monotonic`, in seconds."""

    begun_s: float
    ended_s: float
    status: int  # 0: nothing came
    headers: Mapping[str, str]  # by name, in small letters
    is_whole: bool  # by the rules of HTTP: a stream that breaks off is not

    @property
    def took_s(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def is_served(self) -> bool:
        """Not refused, and answered to the end."""
        return self.status == 200 and self.is_whole


class _Parts:
    """Of an answer, as the parser finds them."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("ascii").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        self.is_whole = True


async def ask(url: str, key: str, body: bytes) -> Answer:
    """Send one chat and wait for the end of its answer, whatever that is; a broken connection is one too."""
    begun_s = time.monotonic()
    parts = _Parts()
    parser = httptools.HttpResponseParser(parts)
    status = 0
    try:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request_head(url, key, len(body), b"connection: close\r\n") + body)
            while not parts.is_whole and (received := await reader.read(READ_BYTES)):
                parser.feed_data(received)
                status = parser.get_status_code()
        finally:
            writer.close()
            await writer.wait_closed()
    except OSError:  # what came until then is what the caller has seen
        pass
    return Answer(begun_s, time.monotonic(), status, parts.headers, parts.is_whole)


async def ask_steadily(
    per_s: float, until: asyncio.Event, one: Callable[[], Coroutine[Any, Any, Answer]]
) -> list[Answer]:
    """Ask at this rate, whether or not others are answered. Returns once all that were begun are."""
    began_s = time.monotonic()
    tasks: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for number in itertools.count():
            await asyncio.sleep(began_s + number / per_s - time.monotonic())
            if until.is_set():
                break
            tasks.append(group.create_task(one()))
    return [task.result() for task in tasks]

"""What is relayed between: a worker's answer, the way to its caller, and who looks on."""

from collections.abc import Callable
from typing import Protocol

from gateway.model import Headers

# What stays behind: the connection's own, and what would tell about the worker.
PRIVATE_HEADERS = frozenset(
    (b"server", b"date", b"x-request-id", b"location", b"set-cookie", b"alt-svc", b"endpoint-load-metrics")
)

OF_STREAMS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # headers that each has

# Takes data of a body, and the frames in which HTTP brought it if those hold nothing else. False: enough.
Sink = Callable[[bytes, bytes | None], bool]


class Answer(Protocol):
    """A worker's answer, whose head has come."""

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None

    async def read(self) -> bytes:
        """What has come since the last read; b"" at the end."""
        ...

    def take(self) -> bytes | None:
        """The same without waiting; None if nothing has come."""
        ...

    async def pour(self, sink: Sink) -> None:
        """Give what comes to `sink` until that has enough, or until the end."""
        ...

    def hold(self, is_held: bool) -> None:
        """Have the worker wait, or no longer."""
        ...


class Pipe(Protocol):
    """A way to the caller that needs no waiting. It tells when it is full; what is written then is kept."""

    def write(self, data: bytes) -> None: ...
    def write_chunks(self, chunks: bytes) -> None:
        """Data in HTTP's frames."""


class Outlet(Protocol):
    """Where an answer goes."""

    started: bool  # the head of a stream may have gone before there is an answer

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer; of a started stream, which is not closed without it, an event: JSON."""

    async def start(self, status: int, headers: Headers, length: int | None) -> None: ...
    async def send(self, data: bytes) -> None: ...
    async def finish(self, data: bytes) -> None:
        """The last bytes and the end, together."""
        ...

    def pipe(self, on_full: Callable[[bool], None]) -> Pipe | None:
        """A way for a started body that needs no task, if there is one; it tells `on_full` when it is."""
        ...


class Watcher(Protocol):
    """Who wants to know how fast the worker is."""

    def first_token(self) -> None:
        """Of a stream."""

    def prompt_done(self) -> None:
        """Some answer has come."""

    def tokens(self, since_s: float, now_s: float, count: int) -> None:
        """So many tokens of a stream came in that time, the last of them at its end."""


def passed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Those of a worker's headers that its caller gets."""
    return [(name, value) for name, value in headers if name not in PRIVATE_HEADERS]

"""What happens on one socket to a worker? Bytes, clocks and backpressure of one exchange after another.

Clocks: a request notes when it began and each arrival notes when it came; one timer per connection looks
at these now and then and is never moved, so neither requests nor chunks pay for a timer.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from gateway.errors import FirstByteTimeout, GapTimeout, WorkerBroke, WorkerError, WorkerTimeout
from gateway.outbox import Write, write_now
from gateway.upstream.response import BrokenResponse, ResponseReader

HIGH_WATER_BYTES = 64 * 1024  # unread bytes above which the worker is made to wait
JOIN_BYTES = 64 * 1024  # up to here one copy is cheaper than a vectored write

_TIMER_SLACK_S = 0.001  # loops round delays to milliseconds; less would fire early and spin


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a worker may take, in seconds."""

    connect_s: float  # name look-up and TLS included
    first_byte_s: float  # from the start of the request to the first byte of the answer's body
    gap_s: float  # between two arrivals of the body


# Takes a part of a body, and the chunks that it came in if those were all that came. False: it has enough.
Sink = Callable[[bytes, bytes | None], bool]


class StaleConnection(WorkerBroke):
    """A reused connection ended with no byte of an answer: the worker had closed it before it was asked."""


class Connection(asyncio.Protocol):
    """One socket, one exchange at a time, one waiting task at a time."""

    def __init__(
        self,
        peer: str,
        timeouts: Timeouts,
        on_lost: "Callable[[Connection], None]",
        write: Write = write_now,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._peer = peer  # for the log
        self._timeouts = timeouts
        self._on_lost = on_lost
        self._write = write
        self._timer_period_s = min(timeouts.first_byte_s, timeouts.gap_s)
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport  # from connection_made on
        self._made = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: WorkerError | None = None
        self._reading_paused = False
        self._reused = False
        self._since: float  # loop time at which the patience below began
        self._patience_s: float
        self._lateness: type[WorkerTimeout]  # what it is once that is over
        self.response = ResponseReader()
        self.sink: Sink | None = None
        self.connected_at: float  # loop time
        self.idle_since: float  # loop time

    # One exchange: send, arrival until the head is in, take and arrival until the end, then park or abort.

    def send(self, head: bytes, body: Sequence[bytes | memoryview], body_bytes: int) -> None:
        """Begin an exchange. Raises WorkerBroke (StaleConnection if reused) where the socket has ended."""
        transport = self._transport
        self.response.start()
        if transport.is_closing():
            raise self._ended("closed by the worker before the request")
        if body_bytes <= JOIN_BYTES:
            self._write(transport, b"".join((head, *body)))
        else:
            transport.writelines((head, *body))
        self._since = self._loop.time()
        self._patience_s = self._timeouts.first_byte_s
        self._lateness = FirstByteTimeout
        if self._timer is None:
            self._timer = self._loop.call_later(self._timer_period_s, self._look_at_clock)

    def arrival(self) -> asyncio.Future[None]:
        """Await it for the next change. Raises the failure of the exchange, if there is one."""
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        return self._waiter

    def take(self) -> bytes | None:
        """What of the body has come since the last take: None if nothing, b"" at the end. May raise."""
        response = self.response
        if response.unread_bytes:
            data = response.take()
            if self._reading_paused:
                self._resume_reading()
            return data
        if response.complete:
            return b""
        if self._failure is not None:
            raise self._failure
        return None

    def pour(self, sink: Sink) -> None:
        """Give `sink` what has come, and then what comes, until it has enough: then it is None again."""
        data = self.take()
        if not data or sink(data, None):
            self.sink = sink

    def hold(self, is_held: bool) -> None:
        """Stop reading the socket, or go on."""
        if is_held:
            self._pause_reading()
        elif self._reading_paused:
            self._resume_reading()

    @property
    def exhausted(self) -> bool:
        """The whole answer has come and was taken."""
        return self.response.complete and not self.response.unread_bytes

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Nothing of this exchange can be mistaken for a part of the next."""
        return (
            self.exhausted
            and self.response.keep_alive
            and not self.is_closing
            and self._transport.get_write_buffer_size() == 0  # else the answer came before all was sent
        )

    @property
    def silent_s(self) -> float:
        """How long the worker has kept an exchange waiting. 0: there is none, or it is we who do not read."""
        if self.response.complete or self._reading_paused:
            return 0.0
        return self._loop.time() - self._since

    def park(self) -> None:
        """Wait for the next exchange."""
        if self._reading_paused:  # for a caller who was slow to take the end
            self._resume_reading()
        self._reused = True
        self.idle_since = self._loop.time()

    def abort(self, reason: str = "closed by the gateway") -> None:
        """End the socket at once, and with it the exchange."""
        self._fail(WorkerBroke(f"{self._peer}: {reason}"))

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._made = True
        self.connected_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        response = self.response
        sink = self.sink
        if sink is not None and (part := response.of_whole_chunks(data)) is not None:
            self._since = self._loop.time()
            if not sink(part, data):
                self.sink = None
                self._wake()
            return
        if response.complete:
            self.abort("bytes that nobody asked for")
            return
        try:
            response.feed(data)
        except BrokenResponse as error:
            if sink is not None and response.unread_bytes:
                self._give(sink)
            self.abort(f"broken answer: {error}")
            return
        if response.unread_bytes:  # the head alone does not say that the worker has begun to answer
            self._since = self._loop.time()
            self._patience_s = self._timeouts.gap_s
            self._lateness = GapTimeout
            if sink is not None:
                self._give(sink)
                if self.sink is not None and not response.complete:
                    return  # nobody waits but for the end
            elif response.unread_bytes > HIGH_WATER_BYTES and not response.complete:
                self._pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end("closed by the worker")
        self._transport.abort()  # an orderly close would wait until the rest of the request is sent

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._end(f"lost: {exc!r}" if exc else "closed")
        self._on_lost(self)

    def _give(self, sink: Sink) -> None:
        """What the parser has found of the body."""
        if not sink(self.response.take(), None):
            self.sink = None

    def _end(self, cause: str) -> None:
        response = self.response
        if not response.complete and self._failure is None:
            try:
                response.end()
            except BrokenResponse as error:
                self._failure = self._ended(f"{error} ({cause})")
        self._wake()

    def _ended(self, cause: str) -> WorkerBroke:
        kind = StaleConnection if self._reused and not self.response.begun else WorkerBroke
        return kind(f"{self._peer}: {cause}")

    def _fail(self, failure: WorkerError) -> None:
        if self._failure is None:
            self._failure = failure
        if self._made:
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():  # done: woken before, or whoever waited was cancelled
            waiter.set_result(None)

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        self._since = self._loop.time()  # the silence until now was ours
        self._transport.resume_reading()

    def _look_at_clock(self) -> None:
        """Runs every `_timer_period_s` at the latest, which no patience undercuts, so none is missed."""
        self._timer = None
        if self.response.complete:
            return  # idle, or all has come; the next request starts the timer anew
        left_s = self._since + self._patience_s - self._loop.time()
        if self._reading_paused:
            left_s = self._timer_period_s
        if left_s > 0:
            delay_s = max(min(left_s, self._timer_period_s), _TIMER_SLACK_S)
            self._timer = self._loop.call_later(delay_s, self._look_at_clock)
        else:
            missed = "answer" if self._lateness is FirstByteTimeout else "byte"
            self._fail(self._lateness(f"{self._peer}: no {missed} within {self._patience_s:g} s"))

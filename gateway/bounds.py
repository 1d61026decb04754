"""How long is a caller waited for, how much is taken of what it sends, and how does its connection end?"""

import asyncio
import json
import secrets
from typing import Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway import framing
from gateway.errors import GatewayError, UploadTooSlow
from gateway.headers import lines, of_error
from gateway.outbox import Outbox
from gateway.uploads import Pace, has_left

MAX_DISCARDED_BYTES = 64 * 1024 * 1024  # of an upload that was refused: above what is allowed by default
IDLE_SLACK_S = 0.01  # loops round to milliseconds; less would spin
LINGER_S = 2.0  # for what is still on its way when a connection is to end
LOOK_S = 0.25  # between two looks at whether a caller is still there whose bytes are left on the socket


class Upload(Protocol):
    """A request whose body is being read."""

    upload_failure: GatewayError | None  # why no more of it will come


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with deadlines for slow callers, bounds for what they send, and errors as JSON."""

    head_timeout_s = 10.0  # from the first byte, or from the connection, to the end of the head
    body_timeout_s = 30.0  # as in `uploads.Pace`

    outbox: Outbox  # of all connections of a server
    _handle: Upload | None = None  # of the latest request
    _timer: asyncio.TimerHandle | None = None  # of a head, a body, or the end
    _looker: asyncio.TimerHandle | None = None
    _pace: Pace  # of a body that comes in several reads, while `_timer` runs
    _read_bytes = 0  # of the latest read
    _is_shared = False  # it has brought the end of a request
    _head_bytes = 0  # of a head, in reads before that
    _framing_bytes = 0  # around a chunked body, more than its chunks need
    _discarded_bytes = 0
    _idle_since = 0.0  # the loop's time at which the latest answer was complete
    _in_head = False
    _in_body = False
    _in_chunks = False
    _is_deaf = False  # nothing more of what the caller says is heeded
    _is_over = False  # nor is anything more said
    _problem: GatewayError | None = None  # to be told when all else is answered
    _defaults: tuple[list[tuple[bytes, bytes]], bytes] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(self.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        for timer in (self.timeout_keep_alive_task, self._looker):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._discard(len(data))
            return
        self._read_bytes = len(data)
        self._is_shared = False
        try:
            self._feed(data)
        except (httptools.HttpParserError, GatewayError) as error:
            self._break_off(framing.problem_of(error))
            return
        if self._timer is None and not self._in_head and not self._in_body:
            return  # a whole request, as nearly always
        self._note_part()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                parser, self.parser = self.parser, httptools.HttpRequestParser(self)
                data = framing.without_upgrade(parser, self.url, self.headers) + data[offer.args[0] :]
            else:
                return

    def _note_part(self) -> None:
        """A read has brought a part of a request."""
        if self._in_head:
            if not self._is_shared:  # else what is of this head is not known, and not counted
                self._head_bytes += self._read_bytes
            if self._head_bytes > framing.MAX_HEAD_BYTES:
                self._break_off(framing.head_too_large())
            elif self._timer is None:
                self._start_timer(self.head_timeout_s)
        elif self._in_body:
            self._note_body_part()
        elif self.cycle is not None:  # else it was an empty line, and a head is still to come
            self._stop_timer()
            if self._is_answered():  # a body that was discarded has come to its end
                self._discarded_bytes = 0
                self._idle_since = self.loop.time()
                self._forget()

    def _note_body_part(self) -> None:
        now = self.loop.time()
        if self._timer is None:
            self._pace = Pace(self.body_timeout_s, now)
            self._start_timer(self.body_timeout_s)
        self._pace.note(self._read_bytes, now)
        if self._in_chunks:
            self._framing_bytes = max(0, self._framing_bytes + self._read_bytes)
            if self._framing_bytes > framing.MAX_HEAD_BYTES:
                self._break_off(framing.invalid("there is too much around the chunks"))
                return
        if self._is_answered():
            self._discard(self._read_bytes)

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self._close()

    def _is_answered(self) -> bool:
        """Whether all has been answered that was asked."""
        return self.cycle is None or self.cycle.response_complete

    def _forget(self) -> None:
        """Keep nothing of the last request."""
        self.cycle = self.scope = self.headers = None  # type: ignore[assignment]  # as at the beginning

    # Too late

    def _start_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._is_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        self._timer = None
        if self._is_over:
            self._close()
        elif self._in_head:
            late = f"The request's head did not come within {self.head_timeout_s:g} s."
            self._break_off(UploadTooSlow(late))
        elif self._in_body:
            self._check_pace()
        else:
            self._linger()  # nothing was asked: there is nothing to tell

    def _check_pace(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused:
            self._pace = Pace(self.body_timeout_s, now)  # it is we who do not read
        left_s = self._pace.left_s(now)
        if left_s > 0:
            self._start_timer(max(left_s, IDLE_SLACK_S))
        elif self._is_answered():
            self._linger()
        else:
            self._break_off(UploadTooSlow("The request's body came too slowly. Send it without long pauses."))

    def _watch_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._in_head or self._in_body or not self._is_answered():
            self._watch_idle(self.timeout_keep_alive)  # busy
        elif left_s > IDLE_SLACK_S:
            self._watch_idle(left_s)
        else:
            self.transport.close()

    def _watch_end(self) -> None:
        """While requests wait, what follows them may be left on the socket, and the end is behind it."""
        if self._looker is None:
            self._looker = self.loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looker = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused and has_left(self.transport):
            self.transport.abort()
        elif self.pipeline:
            self._watch_end()

    # The end

    def _break_off(self, problem: GatewayError) -> None:
        """Heed nothing more of what the caller says: where the next request would begin is not known."""
        self._is_deaf = True
        self._stop_timer()
        if not self._in_body:
            self._problem = problem
            if self._is_answered():
                self._refuse(problem)
        elif self._is_answered() or self._handle is None:
            self._linger()
        else:  # it is the request in question that is answered so
            self._handle.upload_failure = problem
            self.cycle.keep_alive = False
            self.cycle.message_event.set()

    def _refuse(self, problem: GatewayError) -> None:
        """Answer what never became a request."""
        body = json.dumps(problem.body()).encode()
        self.outbox.flush()
        self.transport.write(
            b"%b%b%bcontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
            % (
                STATUS_LINE[problem.status],
                self.default_head(),
                lines(of_error(problem)),
                len(body),
                secrets.token_hex(16).encode(),
                body,
            )
        )
        self._linger()

    def default_head(self) -> bytes:
        """uvicorn's default headers, which change once a second, as bytes."""
        headers = self.server_state.default_headers
        if self._defaults is None or self._defaults[0] is not headers:
            self._defaults = headers, lines(headers)
        return self._defaults[1]

    def hang_up(self) -> None:
        """All has been said."""
        if self._in_body:
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """Say no more, but let the caller finish for a while: a reset could cost it the answer."""
        self._is_over = self._is_deaf = True
        self.outbox.flush()
        self._stop_timer()
        if not self.transport.is_closing():
            self._start_timer(LINGER_S)
            self.flow.resume_reading()
            self.transport.write_eof()

    def _close(self) -> None:
        self.outbox.flush()
        self.transport.close()

"""What happens on a caller's connection below ASGI: deadlines, bounds, and which requests need no ASGI.

Built on the hooks of uvicorn's own HTTP/1.1 protocol, for what ASGI has no words for: that the caller left,
without a task that waits to hear of it; that an upload has come to a halt; and the direct lane, in which a
request costs no scope and its answer no messages (`call.py`).
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.asgi import CONNECTION
from gateway.call import Call
from gateway.errors import BadRequest, GatewayError, HeadTooLarge, UploadTooSlow
from gateway.headers import by_name
from gateway.model import Fields
from gateway.outbox import Outbox

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 65536
IDLE_SLACK_S = 0.01  # loops round to milliseconds; less would spin

ODD = frozenset((b"expect", b"origin", b"upgrade"))  # the second is for CORS

Serve = Callable[[Call], Coroutine[Any, Any, None]]


class Handle:
    """A request that is served through ASGI: what an `asgi.AsgiLine` asks of the server besides."""

    __slots__ = ("_cycle", "_protocol", "upload_stalled")

    def __init__(self, protocol: "GatewayProtocol", cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self.upload_stalled = False

    def watch(self, on_lost: Callable[[], None]) -> None:
        if self._cycle.disconnected:
            on_lost()
        else:
            self._protocol.on_lost = on_lost
            self._protocol.flow.resume_reading()  # a connection that is not read does not tell of its end

    def unwatch(self) -> None:
        self._protocol.on_lost = None

    def abort(self) -> None:
        self._protocol.transport.abort()


class GatewayProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with deadlines for slow callers, a bound for heads, and errors as JSON."""

    head_timeout_s = 10.0  # from the first byte, or from the connection, to the end of the head
    body_timeout_s = 30.0  # between two reads of a body

    outbox: Outbox  # of all connections of a server
    direct: Mapping[bytes, Serve] = {}
    on_lost: Callable[[], None] | None = None  # of the request that is being served through ASGI
    _handle: Handle | Call | None = None  # of the latest request
    _call: Call | None = None  # that is being served, or was the last to be
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _idle_since = 0.0  # the loop's time at which the latest answer was complete
    _in_head = False
    _in_body = False
    _defaults: tuple[list[tuple[bytes, bytes]], bytes] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(self.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None
        if self._call is not None:
            self._call.lost()
        self._forget()  # they hold each other, and would wait for the garbage collector

    def data_received(self, data: bytes) -> None:
        self._head_bytes = self._head_bytes + len(data) if self._in_head else len(data)
        super().data_received(data)
        if self._timer is None and not self._in_head and not self._in_body:
            return  # a whole request, as nearly always
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(f"The request's head is larger than {MAX_HEAD_BYTES} bytes."))
            elif self._timer is None:
                self._start_timer(self.head_timeout_s)
        elif self._in_body:
            self._stop_timer()
            self._start_timer(self.body_timeout_s)
        elif self.cycle is not None:  # else it was an empty line, and a head is still to come
            self._stop_timer()
            if self._is_answered():
                self._forget()  # a body that was discarded has come to its end

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._call is not None:
            self._call.full(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._call is not None:
            self._call.full(False)

    def on_message_begin(self) -> None:
        if self.cycle is not None:
            self._stop_timer()  # of the body before, if that has ended in the same read
        self.url = b""
        self.headers = []
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._stop_timer()
        serve = self.direct.get(self.url)
        fields = by_name(self.headers)
        if serve is None or not self._is_plain(fields):
            self.expect_100_continue = fields.get(b"expect", b"").lower() == b"100-continue"
            self._serve_by_asgi()
            return
        call = Call(self, fields, self.parser.should_keep_alive())
        self.cycle = self._call = self._handle = call  # type: ignore[assignment]  # as a cycle, to uvicorn
        call.task = self.loop.create_task(self._attend(serve, call))
        self.tasks.add(call.task)  # which a server that stops waits for, and cancels in the end

    async def _attend(self, serve: Serve, call: Call) -> None:
        """Serve it. Whatever comes of that, the caller is not left waiting."""
        try:
            await serve(call)
        except Exception:
            log.exception("a request failed by a bug of the gateway")
        finally:
            self.tasks.discard(call.task)
            if not call.response_complete:
                self.transport.close()

    def _is_plain(self, fields: Fields) -> bool:
        """Whether there is nothing about this request that only uvicorn or a middleware knows to serve."""
        parser = self.parser
        return (
            self._is_answered()  # else it is pipelined
            and ODD.isdisjoint(fields)
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
        )

    def _is_answered(self) -> bool:
        """Whether all has been answered that was asked."""
        return self.cycle is None or self.cycle.response_complete

    def _serve_by_asgi(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes the scope
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        super().on_headers_complete()
        self._handle = Handle(self, self.cycle)
        self.scope["extensions"] = {CONNECTION: self._handle}  # type: ignore[dict-item]  # ours to define

    def on_body(self, body: bytes) -> None:
        if self._handle is self._call and self._call is not None:
            self._call.feed(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_bytes = 0  # what the same read may bring of the next head is not known, and not counted
        if self._handle is self._call and self._call is not None:
            self._call.fed()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, but a connection has one timer for its idle times, not one for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if not self._in_body:  # else what still comes of it is to be discarded
            self._forget()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _forget(self) -> None:
        """Keep nothing of the last request."""
        self.cycle = self.scope = self.headers = None  # type: ignore[assignment]  # as at the beginning
        self._handle = self._call = None

    def _watch_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._in_head or not self._is_answered():
            self._watch_idle(self.timeout_keep_alive)  # busy
        elif left_s > IDLE_SLACK_S:
            self._watch_idle(left_s)
        else:
            self.transport.close()

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn for each read: the timer looks for itself whether there was one."""

    def shutdown(self) -> None:
        self.outbox.flush()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("This is not valid HTTP/1.1.", code="invalid_http"))

    def default_head(self) -> bytes:
        """uvicorn's default headers, which change once a second, as bytes."""
        headers = self.server_state.default_headers
        if self._defaults is None or self._defaults[0] is not headers:
            self._defaults = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._defaults[1]

    def _start_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._is_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(UploadTooSlow(f"The request's head did not come within {self.head_timeout_s:g} s."))
        elif not self._in_body or self._is_answered():
            self.outbox.flush()
            self.transport.close()  # nothing was asked, or the answer is out: there is nothing to tell
        else:
            self._start_timer(self.body_timeout_s)
            if self._handle is not None and not self.flow.read_paused:  # else it is we who do not read
                self._handle.upload_stalled = True
                self.cycle.message_event.set()

    def _refuse(self, error: GatewayError) -> None:
        """Answer what never became a request, and close."""
        body = json.dumps(error.body()).encode()
        self.outbox.flush()
        if self._is_answered():
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\n"
                b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
                % (STATUS_LINE[error.status], len(body), secrets.token_hex(16).encode(), body)
            )
        self.transport.close()

"""What happens on a caller's connection below ASGI: which requests there are, and which need no ASGI.

Built on the hooks of uvicorn's own HTTP/1.1 protocol, for what ASGI has no words for: that the caller left,
without a task that waits to hear of it; that an upload has come to a halt; and the direct lane, in which a
request costs no scope and its answer no messages (`call.py`).
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway import framing
from gateway.asgi import CONNECTION
from gateway.bounds import BoundedProtocol
from gateway.call import Call
from gateway.errors import GatewayError
from gateway.framing import MAX_HEAD_BYTES, MOST_DIGITS
from gateway.headers import by_name
from gateway.model import Fields
from gateway.uploads import has_said_more

log = logging.getLogger(__name__)

ODD = frozenset((b"expect", b"origin", b"upgrade"))  # the second is for CORS

Serve = Callable[[Call], Coroutine[Any, Any, None]]


class Handle:
    """A request that is served through ASGI: what an `asgi.AsgiLine` asks of the server besides."""

    __slots__ = ("_cycle", "_protocol", "upload_failure")

    def __init__(self, protocol: "GatewayProtocol", cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self.upload_failure: GatewayError | None = None

    def watch(self, on_lost: Callable[[], None]) -> None:
        if self._cycle.disconnected:
            on_lost()
        else:
            self._protocol.on_lost = on_lost
            self._protocol.flow.resume_reading()  # a connection that is not read does not tell of its end

    def unwatch(self) -> None:
        self._protocol.on_lost = None

    @property
    def is_behind(self) -> bool:
        return self._cycle.disconnected or self._protocol.transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        self._protocol.transport.abort()


class Outlet:
    """A transport as far as uvicorn's cycle uses it, closed in our way."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, protocol: BoundedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.hang_up


class GatewayProtocol(BoundedProtocol):
    """A caller's connection, on which each request takes its lane and has one reading only."""

    direct: Mapping[bytes, Serve] = {}
    is_parting = False  # of all connections of a server that is to end: with its next answer each ends
    on_lost: Callable[[], None] | None = None  # of the request that is being served through ASGI
    _handle: Handle | Call | None = None  # likewise of the latest
    _call: Call | None = None  # that is being served, or was the last to be
    _host: bytes | None = None  # as it was checked

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None
        if self._call is not None:
            self._call.lost()
        self._forget()  # they hold each other, and would wait for the garbage collector

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
        fields = self._fields()
        serve = self.direct.get(self.url)
        is_direct = serve is not None and self._is_plain(fields)
        if not is_direct and self.parser.should_upgrade():
            return  # it is parsed again, without the offer
        if serve is None or not is_direct:
            self._serve_by_asgi(fields)
        else:
            self._serve_directly(serve, fields)
        self._in_head = False
        self._in_body = True
        self._stop_timer()

    def _serve_directly(self, serve: Serve, fields: Fields) -> None:
        call = Call(self, fields, not self.is_parting and self.parser.should_keep_alive())
        self.cycle = self._call = self._handle = call  # type: ignore[assignment]  # as a cycle, to uvicorn
        call.task = self.loop.create_task(self._attend(serve, call))
        self.tasks.add(call.task)  # which a server that stops waits for, and cancels in the end

    def _fields(self) -> Fields:
        """The headers, if they are all right."""
        if self._head_bytes + self._read_bytes > MAX_HEAD_BYTES:
            framing.check_size(self.url, self.headers)
        self._head_bytes = 0
        fields = by_name(self.headers)
        host = fields.get(b"host")
        is_chunked = self._in_chunks = b"transfer-encoding" in fields
        length = fields.get(b"content-length", b"")
        if host != self._host or host is None or is_chunked or len(length) > MOST_DIGITS:
            framing.check(fields, self.parser.get_http_version())
            self._host = host
        return fields

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

    def _serve_by_asgi(self, fields: Fields) -> None:
        version = self.parser.get_http_version()
        framing.check_odd(self.url, version, len(self.pipeline))
        url, headers = self.url, self.headers
        super().on_message_begin()  # makes the scope
        self.url, self.headers = url, headers
        self.expect_100_continue = version == "1.1" and fields.get(b"expect", b"").lower() == b"100-continue"
        self.scope["headers"] = headers
        super().on_headers_complete()
        self.headers = []  # trailers are no headers
        if self.is_parting:
            self.cycle.keep_alive = False
        self.cycle.transport = Outlet(self)  # type: ignore[assignment]  # as far as it uses one
        self._handle = Handle(self, self.cycle)
        self.scope["extensions"] = {CONNECTION: self._handle}  # type: ignore[dict-item]  # ours to define
        if self.expect_100_continue:
            self.cycle.keep_alive = False  # who was not told to go on may send the body, or the next request
        if self.pipeline:
            self._watch_end()

    def on_body(self, body: bytes) -> None:
        if self._in_chunks:
            self._framing_bytes -= framing.BYTES_A_CHUNK * len(body)
        if self._handle is self._call and self._call is not None:
            self._call.feed(body)
            return
        if self.expect_100_continue:
            self.expect_100_continue = False
            self.cycle.keep_alive = not self.is_parting and self.parser.should_keep_alive()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_shared = True
        if self._in_head:
            return  # it is parsed again
        self._in_body = False
        if self._handle is self._call and self._call is not None:
            self._call.fed()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, but a connection has one timer for its idle times, not one for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing() or self._is_over:
            return
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._problem is not None:
            self._refuse(self._problem)
            return
        if not self._in_body and not self._in_head:  # else what is still to come is of it, or of the next
            self._forget()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _forget(self) -> None:
        super()._forget()
        self._handle = self._call = None

    def part(self) -> None:
        """As a server does that is to end: have the answer say so, unless it has begun."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def close_idle(self, since: float) -> None:
        """Close it, if all was answered by that moment of the loop's time and nothing was asked since."""
        if self._in_head or self._in_body or not self._is_answered() or self.transport.is_closing():
            return
        if 0 < self._idle_since <= since and not has_said_more(self.transport):
            self._close()

    def shutdown(self) -> None:
        self.outbox.flush()
        self.expect_100_continue = False  # or `on_body` would have the connection stay
        super().shutdown()

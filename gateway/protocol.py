"""What happens to a caller's connection before there is a request."""

import asyncio
import json
import secrets

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import BadRequest, GatewayError, HeadTooLarge, UploadTooSlow
from gateway.exchange import ABORT

MAX_HEAD_BYTES = 65536


class GatewayProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with a deadline and a bound for the head of a request, and errors as JSON."""

    head_timeout_s = 10.0  # from the first byte, or from the connection, to the end of the head
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes = self._head_bytes + len(data) if self._in_head else len(data)
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(f"The request's head is larger than {MAX_HEAD_BYTES} bytes."))
            elif self._head_timer is None:
                self._start_head_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("This is not valid HTTP/1.1.", code="invalid_http"))

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._in_head:
            self._refuse(UploadTooSlow(f"The request's head did not come within {self.head_timeout_s:g} s."))
        else:
            self.transport.close()  # nothing was said, so nothing is answered

    def _refuse(self, error: GatewayError) -> None:
        """Answer what never became a request, and close."""
        body = json.dumps(error.body()).encode()
        if not (self.cycle and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.write(
                b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
                % (error.status, len(body), secrets.token_hex(16).encode(), body)
            )
        self.transport.close()

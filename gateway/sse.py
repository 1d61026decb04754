"""Look on while a worker's event stream passes: whole events, usage, errors, the end.

Pure and incremental. Format: https://html.spec.whatwg.org/multipage/server-sent-events.html, of which
vLLM uses `data: <json>` and an empty line. Every event costs one look for three marks; only an event that
has one of them is parsed. A mark cannot hide inside generated text, because there its quotes are escaped.
"""

import re

import msgspec

from gateway import payloads
from gateway.model import Usage

MAX_PENDING_BYTES = 4 * 1024 * 1024  # of one event; a larger one passes unread rather than be kept
END_OF_EVENT = re.compile(rb"\n\n|\r\n\r\n|\r\r|\n\r\n")
DONE = b"[DONE]"


class Watch:
    """Follow one stream. `feed` gives back what may go on to the caller: whole events only; feed no more
    once there is an error.

    hide_usage: keep back the event that carries nothing but usage, for a caller who did not ask for it.
    """

    __slots__ = ("_hide_usage", "_pending", "done", "error", "events", "may_be_inside", "usage")

    def __init__(self, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._pending = b""
        self.events = 0  # data events so far, without the usage event and [DONE]
        self.usage: Usage | None = None  # the latest; running totals are never summed
        self.error: bytes | None = None  # payload of an error event; it does not go on
        self.done = False  # [DONE] was seen
        self.may_be_inside = False  # an event passed in parts, so what went on may end inside one

    def feed(self, data: bytes) -> bytes:
        if self._pending:
            data = self._pending + data
            self._pending = b""
        if data.find(b"\r") >= 0:  # `in` makes an exception for itself: slow
            return self._read(self._whole_events(data))
        if not data.endswith(b"\n\n"):
            data = self._whole_events(data)
        newlines = data.count(b"\n")
        tokens: int = data.startswith(b"data: {")
        if newlines > 2:
            tokens += data.count(b"\n\ndata: {")
        if not tokens or newlines != 2 * tokens:
            return self._read(data)  # comments, other fields or other line ends: not every event is a token
        if data.find(b'"usage"') >= 0 or data.find(b'"error"') >= 0 or data.find(DONE) >= 0:
            return self._read(data)
        self.events += tokens
        return data

    def rest(self) -> bytes:
        """The bytes of an event that never ended."""
        pending, self._pending = self._pending, b""
        return pending

    def _whole_events(self, data: bytes) -> bytes:
        end = 0
        for match in END_OF_EVENT.finditer(data):
            end = match.end()
        if len(data) - end > MAX_PENDING_BYTES:
            self.may_be_inside = True
            return data
        self._pending = data[end:]
        return data[:end]

    def _read(self, data: bytes) -> bytes:
        kept = []
        begin = 0
        for match in END_OF_EVENT.finditer(data):
            event = data[begin : match.end()]
            begin = match.end()
            if self._keep(event):
                kept.append(event)
        if self.error is None:
            kept.append(data[begin:])  # an empty line too many, or an event too large to keep
        return b"".join(kept)

    def _keep(self, event: bytes) -> bool:
        """Whether an event goes on to the caller; notes what it says."""
        if self.error is not None:
            return False
        payload = payload_of(event)
        if payload == DONE:
            self.done = True
        elif payload:
            return self._note(payload)
        return True

    def _note(self, payload: bytes) -> bool:
        try:
            content = payloads.event(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            content = payloads.Event()  # not for us to judge
        if content.error:
            self.error = payload
            return False
        if content.usage is not None:
            self.usage = content.usage.usage()
            if content.choices == []:
                return not self._hide_usage
        self.events += 1
        return True


def payload_of(event: bytes) -> bytes:
    """The data of one event: its `data:` lines, without comments and other fields."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)

"""Is a stream watched the same however it is cut, and as the standard divides it into events?"""

import re
from collections.abc import Iterator

import msgspec

from gateway import payloads
from gateway.model import Usage
from tests.fuzz.cuts import cuts
from tests.gateway.test_sse import Facts, watched

WORDS = (
    b"data: ",
    b"data:",
    b"data: {",
    b"\n\n",
    b"\r\n\r\n",
    b"\r",
    b"data: [DONE]\n\n",
    b'data: {"choices":[{"index":0,"text":"a"}]}\n\n',
    b'"usage":{"prompt_tokens":7,"completion_tokens":2}',
    b'"usage":null',
    b'"usage" :',
    b'"choices":[]',
    b'"error":{"message":"no"}',
    b'"error":null',
    b": still there\n\n",
    b"event: message\n",
    b"\\u0065",
    b"[[[[[[[[",
)

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")
# Line ends of two kinds in one stream: an empty line may be seen earlier or later than by the standard.
MIXED = re.compile(rb"\r(?!\n).*\n|\n.*\r(?!\n)", re.DOTALL)
# Names that no worker writes so: whether such an event is read depends on what came with it.
ESCAPED = re.compile(rb"\\u00")


def check(data: bytes) -> None:
    """Raises AssertionError."""
    if ESCAPED.search(data):
        return
    for hide_usage in (True, False):
        whole = watched(data, hide_usage=hide_usage)
        for pieces in cuts(data):
            assert watched(*pieces, hide_usage=hide_usage) == whole, pieces
        if MIXED.search(data):
            continue
        assert whole == _by_the_standard(data, hide_usage)


def _by_the_standard(data: bytes, hide_usage: bool) -> tuple[bytes, Facts]:
    """As `watched`, slowly: every event is read."""
    out: list[bytes] = []
    count = 0
    usage: Usage | None = None
    done = False
    for event, payload in _events(data):
        content = _content(payload)
        if content.error:
            return b"".join(out), (count, usage, payload, done)
        done = done or payload == b"[DONE]"
        if content.usage is not None:
            usage = content.usage.usage()
        of_usage_alone = content.usage is not None and content.choices == []
        count += bool(payload) and payload != b"[DONE]" and not of_usage_alone
        if not (of_usage_alone and hide_usage):
            out.append(event)
    return b"".join(out), (count, usage, None, done)


def _events(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Bytes of each event, and its payload; of one that does not end, there is none."""
    begin, lines = 0, list[bytes]()
    for line in _LINE.finditer(data):
        if line[1].startswith(b"data:"):
            lines.append(line[1][5:].removeprefix(b" "))
        elif not line[1] and line[2] and line.start() > begin:  # else it is of the event that follows
            yield data[begin : line.end()], b"\n".join(lines)
            begin, lines = line.end(), []
    yield data[begin:], b""


def _content(payload: bytes) -> payloads.Event:
    try:
        return payloads.event(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return payloads.Event()

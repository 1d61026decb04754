"""Does our reader of responses agree with h11, an independent implementation, on good and bad bytes?

Both get the same bytes, cut at random. Where httptools and h11 differ, the difference is named here:
`STRICTER` is all that we refuse and h11 takes. What we take and h11 refuses is a control character in
a reason phrase and empty lines between a 1xx head and the next: `tamed` removes these, and then h11 must
take the rest exactly as we did, so neither moves the end of a body.
"""

import re
from typing import NamedTuple

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.response import BrokenResponse, ResponseReader

HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"content-length",
}


STRICTER = re.compile(
    "Missing expected CR after|Invalid header field char|Invalid header value char"  # bare CR or LF
    "|Unexpected whitespace after header value"  # a folded header
    "|Invalid character in chunk extensions|Invalid character in chunk size|Expected LF after chunk size"
    "|Invalid response status"  # a bare LF or CR behind it
    "|Invalid HTTP version"  # of HTTP/0.x and above 1.1
    r"|transfer-encoding \[b'chunked'\] in HTTP/1\.0|HTTP version"
    r"|status 1\d\d with a body|transfer-encoding \[b'chunked( *\\t)+"  # white space behind it is a space
    "|Content-Length can't be present with|Transfer-Encoding can't be present with"  # also with 204, 304, 1xx
    "|Data after `Connection: close`"  # in a 1xx head
    "|Duplicate Content-Length|Invalid character in Content-Length"  # h11 takes equal ones
)
HEAD = re.compile(rb"[\r\n]*(HTTP/1\.[01] ([0-9]{3}))[^\r\n]*(.*?\r\n\r\n)", re.DOTALL)


class Verdict(NamedTuple):
    complete: bool
    status: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    reason: str = ""  # why it is broken


def read_with_ours(pieces: list[bytes]) -> Verdict:
    reader = ResponseReader()
    reader.start()
    body = b""
    try:
        for piece in pieces:
            if piece and not reader.complete:
                reader.feed(piece)
                body += reader.take()
        if not reader.complete:
            reader.end()
    except BrokenResponse as error:
        return Verdict(False, reason=str(error))
    return Verdict(True, reader.status, tuple(reader.headers), body)


def read_with_h11(pieces: list[bytes]) -> Verdict:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "w"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    status, headers, body = 0, [], b""
    try:
        for piece in [*filter(None, pieces), b""]:
            connection.receive_data(piece)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    break
                if isinstance(event, h11.Response):
                    status, headers = event.status_code, list(event.headers)
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return Verdict(True, status, passed_on(headers), body)
                elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    return Verdict(False)  # it switched protocols, or ended
    except h11.RemoteProtocolError as error:
        return Verdict(False, reason=str(error))
    return Verdict(False)


def passed_on(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    named = [value.lower().split(b",") for name, value in headers if name == b"connection"]
    tokens = {token.strip() for tokens in named for token in tokens}
    return tuple(header for header in headers if header[0] not in HOP_BY_HOP | tokens)


# What a response may be made of.

NAMES = [b"content-type", b"X-Foo", b"server", b"Date", b"x-request-id", b"KEEP-ALIVE", b"vary"]
OPTIONS = [b"close", b"keep-alive", b"x-foo", b"Keep-Alive, X-Foo", b"close , vary"]
INJURIES = [
    *(b"\r\n", b"\n", b"\r", b" ", b":", b"0", b"f", b";", b",", b"\x00", b"\t", b"-", b"+"),
    *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 200 OK\r\n"),
    *(b"Connection: close\r\n", b"Content-Length: 3, 3\r\n"),
]

values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12).map(str.encode)
extra_headers = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
connection_values = st.sampled_from(OPTIONS)
injuries = st.sampled_from(INJURIES)
bodies = st.binary(max_size=60)
statuses = st.sampled_from([200, 201, 204, 206, 304, 400, 404, 429, 500, 503])


def head(version: bytes, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = [b"HTTP/%b %d Reason" % (version, status), *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join([*lines, b"", b""])


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(body))), max_size=4)))
    starts = [0, *cuts]
    chunks = [body[a:b] for a, b in zip(starts, [*cuts, len(body)], strict=True)]
    extension = draw(st.sampled_from([b"", b";a=b", b';name="x"']))
    trailer = draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"]))
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(c), extension, c) for c in chunks if c)
    return framed + b"0\r\n" + trailer + b"\r\n"


@st.composite
def valid_responses(draw: st.DrawFn) -> bytes:
    status, body, headers = draw(statuses), draw(bodies), draw(extra_headers)
    if draw(st.booleans()):
        headers.append((b"Connection", draw(connection_values)))
    framing = draw(st.sampled_from(["length", "chunked", "eof", "eof 1.0", "length 1.0"]))
    version = b"1.0" if framing.endswith("1.0") else b"1.1"
    if status in (204, 304):
        body, framing = b"", "eof"
    if framing.startswith("length"):
        headers.insert(draw(st.integers(0, len(headers))), (b"Content-Length", b"%d" % len(body)))
        payload = body
    elif framing == "chunked":
        headers.insert(draw(st.integers(0, len(headers))), (b"Transfer-Encoding", b"chunked"))
        payload = draw(chunked(body))
    else:
        payload = body
    before = head(b"1.1", 100, []) * draw(st.integers(0, 2)) if version == b"1.1" else b""
    return before + head(version, status, headers) + payload


@st.composite
def broken_responses(draw: st.DrawFn) -> bytes:
    """Valid ones with up to three injuries; some survive them."""
    text = draw(valid_responses())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["cut", "insert", "remove", "overwrite"])):
            case "cut":
                text = text[:at]
            case "insert":
                text = text[:at] + draw(injuries) + text[at:]
            case "remove":
                text = text[:at] + text[at + draw(st.integers(1, 4)) :]
            case _:
                text = text[:at] + draw(injuries) + text[at + 1 :]
    return text


@st.composite
def pieces_of(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> list[bytes]:
    text = draw(texts)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=300, deadline=None)
@given(pieces_of(valid_responses()))
def test_valid_responses_read_as_h11_reads_them(pieces: list[bytes]) -> None:
    ours = read_with_ours(pieces)
    assert ours.complete
    assert ours == read_with_h11(pieces)


@settings(max_examples=1000, deadline=None)
@given(pieces_of(broken_responses()))
def test_broken_responses_are_broken_to_both_but_for_what_is_named_above(pieces: list[bytes]) -> None:
    agree(pieces)


def agree(pieces: list[bytes]) -> None:
    """Raises AssertionError where the two differ in what is not named above."""
    ours, theirs = read_with_ours(pieces), read_with_h11(pieces)
    if ours.complete and not theirs.complete:
        theirs = read_with_h11([tamed(b"".join(pieces))])
    if ours.complete or not theirs.complete:
        assert ours._replace(reason="") == theirs._replace(reason="")
    else:
        assert STRICTER.match(ours.reason), ours.reason


def tamed(text: bytes) -> bytes:
    """With plain reason phrases in the heads that come before a body, and nothing between these heads."""
    heads = b""
    while head := HEAD.match(text):
        heads += head[1] + b" OK" + head[3]
        text = text[head.end() :]
        if not head[2].startswith(b"1"):
            break
    return heads + text

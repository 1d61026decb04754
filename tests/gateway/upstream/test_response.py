"""Does the reader find the one response in the bytes, however they are cut, and refuse all else?"""

import pytest

from gateway.upstream.response import MAX_HEAD_BYTES, BrokenResponse, ResponseReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = OK + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = CHUNKED + b"7\r\ndata: a\r\n1;x=y\r\n\n\r\n0\r\nX-Trailer: 1\r\n\r\n"
UNTIL_EOF = OK + b"Content-Type: text/plain\r\n\r\nto the end"
INFORMED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN


def read(*pieces: bytes, eof: bool = True) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader()
    reader.start()
    for piece in pieces:
        reader.feed(piece)
    if eof and not reader.complete:
        reader.end()
    return reader, reader.take()


def facts(reader: ResponseReader, body: bytes) -> tuple[object, ...]:
    return reader.status, reader.headers, reader.length, reader.keep_alive, reader.complete, body


CASES = {
    "plain": (PLAIN, (200, [(b"content-type", b"application/json")], 2, True, True, b"{}")),
    "stream": (STREAM, (200, [(b"content-type", b"text/event-stream")], None, True, True, b"data: a\n")),
    "until eof": (UNTIL_EOF, (200, [(b"content-type", b"text/plain")], None, False, True, b"to the end")),
    "informed": (INFORMED, (200, [(b"content-type", b"application/json")], 2, True, True, b"{}")),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_response_reads_the_same_cut_at_every_position(text: bytes, expected: tuple[object, ...]) -> None:
    for at in range(1, len(text)):
        assert facts(*read(text[:at], text[at:])) == expected


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_response_reads_the_same_byte_by_byte(text: bytes, expected: tuple[object, ...]) -> None:
    assert facts(*read(*(text[at : at + 1] for at in range(len(text))))) == expected


@pytest.mark.parametrize("text", [PLAIN, STREAM, INFORMED], ids=["plain", "stream", "informed"])
def test_an_end_before_the_end_is_broken_at_every_position(text: bytes) -> None:
    for at in range(len(text)):
        with pytest.raises(BrokenResponse):
            read(*filter(None, [text[:at]]))


def test_one_reader_reads_many_responses() -> None:
    reader = ResponseReader()
    for text, body in [(STREAM, b"data: a\n"), (PLAIN, b"{}"), (INFORMED, b"{}"), (STREAM, b"data: a\n")]:
        reader.start()
        assert (reader.status, reader.headers, reader.length, reader.begun) == (0, [], None, False)
        reader.feed(text)
        assert (reader.complete, reader.take(), reader.begun) == (True, body, True)


def test_hop_by_hop_headers_are_dropped_and_the_rest_kept_in_order() -> None:
    reader, _ = read(
        OK + b"A: 1\r\nConnection: keep-alive, X-Foo\r\nx-FOO: 2\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n"
        b"Trailer: T\r\nUpgrade: h2c\r\nProxy-Connection: x\r\nProxy-Authenticate: x\r\nB:  3 \t\r\nA: 4\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
    )
    assert reader.headers == [(b"a", b"1"), (b"b", b"3"), (b"a", b"4"), (b"content-encoding", b"gzip")]
    assert reader.length == 0


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: X-Foo, Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_keep_alive_is_as_the_head_says(head: bytes, keep_alive: bool) -> None:
    reader, _ = read(head, eof=False)
    assert (reader.complete, reader.keep_alive) == (True, keep_alive)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_status_without_a_body_ends_with_its_head(status: bytes) -> None:
    reader, body = read(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n", eof=False)
    assert (reader.complete, reader.length, body) == (True, None, b"")


@pytest.mark.parametrize("after", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny"])
def test_bytes_after_the_end_spoil_the_connection_but_not_the_response(after: bytes) -> None:
    reader, body = read(PLAIN + after)
    assert facts(reader, body) == (200, [(b"content-type", b"application/json")], 2, False, True, b"{}")


BROKEN = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "another protocol that httptools knows": b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "an empty line before the status line": b"\r\n" + PLAIN,
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "an impossible status": b"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "switched protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxyz",
    "switched protocols, headers missing": b"HTTP/1.1 101 Switching\r\n\r\n" + PLAIN,
    "a body of what is no answer yet": b"HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nab" + PLAIN,
    "chunks of what is no answer yet": b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n"
    + PLAIN,
    "length and chunks": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths that differ": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "two lengths that agree": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "a list of lengths": OK + b"Content-Length: 2, 2\r\n\r\nab",
    "no length in the header": OK + b"Content-Length: \r\n\r\n",
    "a signed length": OK + b"Content-Length: +2\r\n\r\nab",
    "a length beyond 64 bits": OK + b"Content-Length: 99999999999999999999\r\n\r\nab",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two headers of coding": OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "chunked, but not last": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "an unknown coding": OK + b"Transfer-Encoding: x\r\n\r\nab",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "a chunk size that is no number": CHUNKED + b"g\r\na\r\n0\r\n\r\n",
    "a negative chunk size": CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"10000000000000000\r\na\r\n0\r\n\r\n",
    "bare line feeds": OK.replace(b"\r", b"") + b"Content-Length: 0\n\n",
    "a folded header": OK + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": OK + b"A : b\r\nContent-Length: 0\r\n\r\n",
    "a NUL in a header": OK + b"A: \x00\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_not_one_well_framed_response_is_broken(text: bytes) -> None:
    with pytest.raises(BrokenResponse):
        read(text)
    with pytest.raises(BrokenResponse):
        read(*(text[at : at + 1] for at in range(len(text))))


LINE = b"X-Filler: " + b"x" * 1012 + b"\r\n"  # 1 KiB
OVERSIZED = {
    "head": OK + LINE * 65 + b"Content-Length: 0\r\n\r\n",
    "one endless header": OK + b"X-Filler: " + b"x" * (MAX_HEAD_BYTES + 1),
    "trailers": CHUNKED + b"0\r\n" + LINE * 80 + b"\r\n",
    "chunk extension": CHUNKED + b"1;x=" + b"y" * (MAX_HEAD_BYTES + 8192) + b"\r\na\r\n0\r\n\r\n",
    "heads that promise another": (b"HTTP/1.1 103 Early Hints\r\n" + LINE + b"\r\n") * 80 + PLAIN,
}


@pytest.mark.parametrize("text", OVERSIZED.values(), ids=OVERSIZED.keys())
def test_heads_and_trailers_are_bounded(text: bytes) -> None:
    with pytest.raises(BrokenResponse, match="64 KiB"):
        read(*(text[at : at + 4096] for at in range(0, len(text), 4096)))


def test_a_head_too_large_is_broken_also_when_it_comes_in_one_piece() -> None:
    with pytest.raises(BrokenResponse, match="64 KiB"):
        read(OVERSIZED["head"])


def test_a_large_body_that_comes_with_its_head_is_not_taken_for_a_head() -> None:
    size = 2 * MAX_HEAD_BYTES
    reader, body = read(OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
    assert (reader.complete, len(body)) == (True, size)


def test_a_long_stream_of_small_chunks_is_not_taken_for_trailers() -> None:
    reader, body = read(CHUNKED, *[b"1\r\na\r\n"] * MAX_HEAD_BYTES, b"0\r\n\r\n")
    assert (reader.complete, len(body)) == (True, MAX_HEAD_BYTES)


def test_unread_bytes_are_those_since_the_last_take() -> None:
    reader, _ = read(CHUNKED, eof=False)
    reader.feed(b"2\r\nab\r\n3\r\ncde\r\n")
    assert reader.unread_bytes == 5
    assert reader.take() == b"abcde"
    assert (reader.unread_bytes, reader.take(), reader.complete) == (0, b"", False)

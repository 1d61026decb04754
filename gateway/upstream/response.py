"""What does a worker's answer say? Bytes in, one HTTP/1.1 response out, without any I/O.

httptools reads the syntax. Here its framing is tightened: one way only to tell where a body ends, no
protocol but HTTP/1.x, bounded heads and trailers.
"""

import re

import httptools

MAX_HEAD_BYTES = 64 * 1024  # heads before the final one included; also trailers and chunk extensions

_SIGNATURE = b"HTTP/"  # httptools would also take RTSP/ and ICE/
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OF_A_BODY = (b"content-length", b"transfer-encoding")
_NOT_PASSED_ON = _HOP_BY_HOP | {b"content-length"}  # the next hop has a framing of its own


# Without extensions, and not the last one, whose size is zero; seven digits are more than is read at once.
_CHUNK_SIZE = re.compile(rb"([1-9a-f][0-9a-f]{0,6})\r\n", re.IGNORECASE).match


class BrokenResponse(Exception):
    """The bytes are not one well-framed response."""


class ResponseReader:
    """Reads one response after another. `start()` before each; `complete` until then.

    After `feed` the fields hold what is known so far. Names of headers are in lower case, hop-by-hop
    headers are left out, trailers and 1xx responses are dropped.
    """

    __slots__ = (
        "_between_chunks",
        "_framing",
        "_informational",
        "_parser",
        "_parts",
        "_quiet_bytes",
        "_until_eof",
        "complete",
        "head_complete",
        "headers",
        "keep_alive",
        "length",
        "status",
        "unread_bytes",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.start()
        self.complete = True  # nothing is expected yet

    def start(self) -> None:
        """Expect a response."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None  # of the body, where the head tells it
        self.head_complete = False
        self.complete = False  # the last byte has come
        self.keep_alive = False  # another response may follow on the connection
        self.unread_bytes = 0
        self._parts: list[bytes] = []
        self._framing: list[tuple[bytes, bytes]] = []
        self._informational = False
        self._until_eof = False
        self._quiet_bytes = 0  # fed since the head or a piece of the body was last completed
        self._between_chunks = False  # the parser has seen a chunk to its end, and nothing of the next

    @property
    def begun(self) -> bool:
        """At least one byte has come."""
        return self._quiet_bytes > 0 or self.head_complete

    def feed(self, data: bytes) -> None:
        """Take in what the connection brought; only while not `complete`. Raises BrokenResponse."""
        offset = self._quiet_bytes
        if offset < len(_SIGNATURE) and not self.head_complete:
            self._check_signature(data, offset)
        self._quiet_bytes = offset + len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.keep_alive = False
            if not self.complete:  # else this response is sound, and what follows it is not
                raise BrokenResponse(str(error.__context__ or error)) from error
        if self._between_chunks and not data.endswith(b"\n"):
            self._between_chunks = False  # some of the next one's size has come
        if self._quiet_bytes > MAX_HEAD_BYTES and not self.complete:
            raise BrokenResponse("more than 64 KiB of head or trailers")

    def of_whole_chunks(self, data: bytes) -> bytes | None:
        """What `data` has of the body, if it is nothing but whole chunks, as each token of a stream is one.

        None: it is to be fed. The parser need not see such data, as it stands between two chunks anyway.
        """
        if not self._between_chunks:
            return None
        size = _CHUNK_SIZE(data)
        if size is None:
            return None
        begin = size.end()
        end = begin + int(size[1], 16)
        if end + 2 == len(data) and data.endswith(b"\r\n"):
            return data[begin:end]
        return _joined(data, begin, end)

    def end(self) -> None:
        """The connection has ended. Raises BrokenResponse if the response has not."""
        if self._until_eof and self.head_complete:
            self.complete = True
        if not self.complete:
            raise BrokenResponse("the connection ended before the answer" if self.begun else "no answer")

    def take(self) -> bytes:
        """The body as far as it has come since the last take; empty if nothing has."""
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.unread_bytes = 0
        return data

    def _check_signature(self, data: bytes, offset: int) -> None:
        if not data.startswith(_SIGNATURE[offset : offset + len(data)]):
            raise BrokenResponse(f"not HTTP: {data[:32]!r}")

    # Called by the parser. What they raise comes out of feed_data as the context of its error.

    def on_message_begin(self) -> None:
        if self.complete:
            raise BrokenResponse("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_complete:
            return  # a trailer
        name = name.lower()
        if name in _NOT_PASSED_ON:
            self._framing.append((name, value.rstrip(b" ")))  # with a tab it is another one to the parser
        else:
            self.headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self._quiet_bytes > MAX_HEAD_BYTES:
            self._check_head_size()
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise BrokenResponse(f"HTTP version {version}")
        if self.status < 200:
            self._begin_informational()
            return
        self._read_framing(version)
        self.head_complete = True
        self._quiet_bytes = 0

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = True
        self._quiet_bytes = 0

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)
        self.unread_bytes += len(data)
        self._quiet_bytes = 0

    def on_message_complete(self) -> None:
        if self._informational:
            self._informational = False
            self.headers.clear()
            self._framing.clear()
        else:
            self.complete = True
            self._between_chunks = False

    def _begin_informational(self) -> None:
        if self.status == 101 or self.status < 100:
            raise BrokenResponse(f"status {self.status}")
        if any(name in _OF_A_BODY for name, _ in self._framing):
            raise BrokenResponse(f"status {self.status} with a body, which nobody else would read as one")
        self._informational = True

    def _read_framing(self, version: str) -> None:
        tokens: set[bytes] = set()
        codings: list[bytes] = []
        for name, value in self._framing:
            if name == b"content-length":
                self.length = int(value)
            elif name == b"transfer-encoding":
                codings.append(value.lower())
            elif name == b"connection":
                tokens.update(token.strip() for token in value.lower().split(b","))
        if codings and (codings != [b"chunked"] or version == "1.0"):
            raise BrokenResponse(f"transfer-encoding {codings} in HTTP/{version}")
        self.keep_alive = self._parser.should_keep_alive() and b"close" not in tokens
        if self.status in (204, 304):
            self.length = None  # it would be that of another response
        elif self.length is None and not codings:
            self._until_eof = True
        if tokens:
            self.headers = [header for header in self.headers if header[0] not in tokens]

    def _check_head_size(self) -> None:
        """Exactly, since the bytes fed may hold a body as well."""
        head = (*self.headers, *self._framing)
        if sum(len(name) + len(value) + len(b": \r\n") for name, value in head) > MAX_HEAD_BYTES:
            raise BrokenResponse("a head of more than 64 KiB")


def _joined(data: bytes, begin: int, end: int) -> bytes | None:
    """What is in several chunks, of which the first is from `begin` to `end`; None if one is not whole."""
    parts = []
    while data.startswith(b"\r\n", end):
        parts.append(data[begin:end])
        if end + 2 == len(data):
            return b"".join(parts)
        size = _CHUNK_SIZE(data, end + 2)
        if size is None:
            return None
        begin = size.end()
        end = begin + int(size[1], 16)
    return None

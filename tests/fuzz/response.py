"""Is an answer of a worker the same however it is cut, and the one that h11 reads?"""

import re

from tests.fuzz.cuts import cuts
from tests.gateway.upstream.test_response_against_h11 import agree, read_with_ours
from tests.gateway.upstream.test_response_chunks import both

WORDS = (
    b"\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 ",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b";a=b",
    b"\n",
    b"\r",
    b"\x00",
    b" ",
    b"\t",
    b",",
    b"204",
    b"304",
    b"101",
)

# In trailers, which are dropped, h11 refuses this.
FRAMING_IN_TRAILERS = re.compile(
    rb"\r\n0+(;[^\r\n]*)?\r\n([^\r\n]+\r\n)*(transfer-encoding|content-length)\s*:", re.IGNORECASE
)


def check(data: bytes) -> None:
    """Raises AssertionError. What passes without the parser has to be what the parser would have found."""
    whole = read_with_ours([data])._replace(reason="")
    for pieces in cuts(data):
        assert read_with_ours(pieces)._replace(reason="") == whole, pieces
        both(pieces)
    if not FRAMING_IN_TRAILERS.search(data):
        agree([data])

"""Can a request be read in one way only? What another reader could take for something else is refused.

A caller's bytes may have passed a proxy that found other requests in them than we do: what one takes for a
body, the other takes for a request of somebody else. The parser refuses most of what is ambiguous. Here is
what it lets pass, and what it takes for the beginning of another protocol.
"""

import logging
import re

from httptools import HttpParserCallbackError, HttpParserError, HttpRequestParser, parse_url

from gateway.errors import BadRequest, GatewayError, HeadTooLarge, InternalError, MethodNotAllowed
from gateway.headers import lines
from gateway.model import Fields, Headers

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 65536
MOST_DIGITS = 19  # of a length: all that a signed number of 64 bits may have
MOST_WAITING = 32  # requests on one connection, sent while another is served: each is kept
WHITE = b" \t"  # behind a value, where the parser leaves it
BYTES_A_CHUNK = 6  # around one byte of a body, the least that a chunk can hold

_VERSIONS = ("1.1", "1.0")
_is_host = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*").fullmatch  # no space: it comes from two of them


def invalid(problem: str) -> BadRequest:
    """What a caller is told whose bytes are no request."""
    return BadRequest(f"This is not valid HTTP/1.1: {problem}.", code="invalid_http")


def check(fields: Fields, version: str) -> None:
    """Raises BadRequest unless it is clear whom the request is for, and where its body ends."""
    if version not in _VERSIONS:
        raise invalid("the version is neither 1.1 nor 1.0")
    host = fields.get(b"host")
    if host is None:
        if version == "1.1":
            raise invalid("there is no Host")
    elif b"," in host or not _is_host(host.rstrip(WHITE)):  # several are joined by commas
        raise invalid("the Host is no host, or there are several")
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if coding.rstrip(WHITE).lower() != b"chunked":
            raise invalid("the only Transfer-Encoding is 'chunked', once")
        if version != "1.1" or b"content-length" in fields:
            raise invalid("Transfer-Encoding goes with HTTP/1.1, and without Content-Length")
    if len(fields.get(b"content-length", b"")) > MOST_DIGITS:
        raise invalid("the Content-Length has too many digits")


def check_size(url: bytes, headers: Headers) -> None:
    """Raises HeadTooLarge."""
    size = len(url) + sum([len(name) + len(value) + len(b": \r\n") for name, value in headers])
    if size > MAX_HEAD_BYTES:
        raise head_too_large()


def head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"The request's head is larger than {MAX_HEAD_BYTES} bytes.")


def without_upgrade(parser: HttpRequestParser, url: bytes, headers: Headers) -> bytes:
    """The head of a request that offers another protocol, without the offer. Raises MethodNotAllowed.

    Nobody has to take it up (RFC 9110, 7.8), and clients of HTTP/2 offer that with any request. But the
    parser takes what follows such a head, were it the body, for bytes of the other protocol.
    """
    method, version = parser.get_method(), parser.get_http_version().encode("ascii")
    if method == b"CONNECT":
        raise MethodNotAllowed("There is no way through here to other servers.", "GET, POST")
    kept = lines(header for header in headers if header[0] != b"upgrade")
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, kept)


def check_odd(url: bytes, version: str, waiting: int) -> None:
    """Raises BadRequest for what only requests can have that are not plain. waiting: those before it."""
    if version not in _VERSIONS:
        raise invalid("the version is neither 1.1 nor 1.0")
    if b"#" in url:
        raise invalid("the target has a fragment")
    if not url.startswith(b"/") and parse_url(url).path is None:
        raise invalid("the target has no path")
    if waiting >= MOST_WAITING:
        raise invalid("too many requests at once on one connection; wait for the answers")


def problem_of(error: Exception) -> GatewayError:
    """What a caller is told of whatever has put an end to the reading of its bytes."""
    cause = error.__context__ if isinstance(error, HttpParserCallbackError) else error
    if isinstance(cause, GatewayError):
        return cause
    if isinstance(cause, HttpParserError):
        return invalid("the head or the framing of the body cannot be read")
    log.error("a request failed by a bug of the gateway", exc_info=cause)
    return InternalError()

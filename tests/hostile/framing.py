"""Is there any way to have one request read as two, or two as one?"""

from tests.conftest import KEY
from tests.hostile.cases import (
    BODY,
    HIDDEN,
    HOST,
    INVALID,
    LENGTH,
    Case,
    get,
    invalid,
    request,
    served,
)

NO_KEY = "401 invalid_api_key"
UNSUPPORTED = "415 unsupported_media_type"
CHUNKED = b"Transfer-Encoding: chunked"
SIZE = b"%x" % len(BODY)
WHOLE = SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
WITH_KEY = WHOLE[:-2] + b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n"
FIRST_1_0 = b"POST /v1/completions HTTP/1.0"
OLD = request(first=FIRST_1_0)
LESS = b"Content-Length: %d" % (len(BODY) - 9)
MORE = b"Content-Length: %d" % (len(BODY) + 9000)


def framed(name: str, framing: bytes, body: bytes = WHOLE + HIDDEN) -> Case:
    return invalid(name, request(body, framing=framing))


def chunks(name: str, body: bytes) -> Case:
    return invalid(name, request(body + HIDDEN, framing=CHUNKED))


def lengths(name: str, value: bytes) -> Case:
    return invalid(name, request(BODY + HIDDEN, framing=b"Content-Length:" + value))


LENGTHS_AND_CODINGS = [
    served("a length", request()),
    served("chunks", request(WHOLE, framing=CHUNKED)),
    framed("length, then chunks", LENGTH + b"\r\n" + CHUNKED),
    framed("chunks, then length", CHUNKED + b"\r\n" + LENGTH),
    framed("length 0, and chunks", b"Content-Length: 0\r\n" + CHUNKED),
    *[
        framed(f"coding {name}", b"Transfer-Encoding:" + value)
        for name, value in {
            "xchunked": b" xchunked",
            "chunked, identity": b" chunked, identity",
            "identity, chunked": b" identity, chunked",
            "gzip, chunked": b" gzip, chunked",
            "chunked twice": b" chunked, chunked",
            "identity": b" identity",
            "empty": b"",
            "with a parameter": b" chunked;q=1",
            "in quotes": b' "chunked"',
            "behind a comma": b" ,chunked",
            "before a comma": b" chunked,",
            "behind a vertical tab": b" \x0bchunked",
            "before a zero": b" chunked\x00",
        }.items()
    ],
    served("coding in capitals", request(WHOLE, framing=b"Transfer-Encoding: CHUNKED")),
    served("coding among blanks", request(WHOLE, framing=b"Transfer-Encoding: \t chunked  ")),
    framed("coding before a tab", b"Transfer-Encoding: chunked\t"),
    framed("coding in two lines", CHUNKED + b"\r\n" + CHUNKED),
    framed("identity and chunked in two lines", b"Transfer-Encoding: identity\r\n" + CHUNKED),
    framed("chunked and identity in two lines", CHUNKED + b"\r\nTransfer-Encoding: identity"),
    framed("coding folded", b"Transfer-Encoding:\r\n chunked"),
    framed("blank before the colon of a coding", b"Transfer-Encoding : chunked"),
    framed("tab before the colon of a coding", b"Transfer-Encoding\t: chunked"),
    invalid("chunks in HTTP/1.0", request(WHOLE + HIDDEN, framing=CHUNKED, first=FIRST_1_0)),
    lengths("length twice in a line", b" %d, %d" % (len(BODY), len(BODY))),
    lengths("length with a plus", b" +%d" % len(BODY)),
    lengths("length below 0", b" -1"),
    lengths("length in hex", b" 0x%x" % len(BODY)),
    lengths("length with an underscore", b" 1_0"),
    lengths("length with a point", b" %d.0" % len(BODY)),
    lengths("length with a blank inside", b" %d 1" % len(BODY)),
    lengths("length empty", b""),
    lengths("length over 64 bits", b" 18446744073709551616"),
    lengths("length of 30 digits", b" %030d" % len(BODY)),
    lengths("length of 5000 digits", b" %05000d" % len(BODY)),
    lengths("length in other digits", " \uff15".encode()),
    framed("length in two lines, the same", LENGTH + b"\r\n" + LENGTH, BODY + HIDDEN),
    framed("length in two lines, another", LENGTH + b"\r\nContent-Length: 0", BODY + HIDDEN),
    framed("blank before the colon of a length", LENGTH.replace(b":", b" :"), BODY + HIDDEN),
    served("length among blanks", request(framing=LENGTH + b"  \t")),
    served("length with zeros before it", request(framing=b"Content-Length: %05d" % len(BODY))),
    served("a length with an underscore in its name", request(BODY, b"Content_Length: 0")),
]

LINES = [
    invalid("no CR in a head", request().replace(b"\r\n", b"\n") + HIDDEN),
    invalid("no CR behind one header", request().replace(HOST + b"\r\n", HOST + b"\n")),
    invalid("no CR behind the first line", request().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n")),
    invalid("no CR at the end of a head", request().replace(b"\r\n\r\n", b"\r\n\n")),
    invalid("no LF behind one header", request().replace(HOST + b"\r\n", HOST + b"\r")),
    invalid("CR in a value", request(BODY, b"X-A: a\rb")),
    invalid("two CR", request(BODY, b"X-A: a\r")),
    invalid("folded with a blank", request(BODY, b"X-A: a\r\n b")),
    invalid("folded with a tab", request(BODY, b"X-A: a\r\n\tb")),
    invalid("folded at the beginning", request(host=b" X-A: a\r\n" + HOST)),
    served("empty lines before a request", b"\r\n\r\n" + request()),
]

CHUNKS = [
    served(
        "many chunks", request(b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n", framing=CHUNKED)
    ),
    served("chunk size with zeros before it", request(b"000" + WHOLE, framing=CHUNKED)),
    served("chunk size in capitals", request(SIZE.upper() + WHOLE.removeprefix(SIZE), framing=CHUNKED)),
    served(
        "last chunk of many zeros", request(WHOLE.replace(b"\r\n0\r\n", b"\r\n0000\r\n"), framing=CHUNKED)
    ),
    served("a short extension", request(SIZE + b";a=b;c" + WHOLE.removeprefix(SIZE), framing=CHUNKED)),
    chunks("an extension without a name", SIZE + b";" + WHOLE.removeprefix(SIZE)),
    chunks("LF in an extension", SIZE + b";a\n0\r\n\r\n" + WHOLE),
    chunks("CR in an extension", SIZE + b";a\rb" + WHOLE.removeprefix(SIZE)),
    chunks(
        "an extension in quotes, with lines in it", SIZE + b';a="\r\n0\r\n\r\n"' + WHOLE.removeprefix(SIZE)
    ),
    Case(
        "an extension without end",
        request(SIZE + b";a=" + b"b" * 2_000_000, framing=CHUNKED),
        (INVALID,),
        "closed",
        shown="`Transfer-Encoding: chunked`, `;a=bbb...` of 2 MB",
    ),
    Case(
        "trailers without end",
        request(WHOLE[:-2] + b"a: b\r\n" * 400_000, framing=CHUNKED),
        (INVALID,),
        "closed",
        shown="`Transfer-Encoding: chunked`, 2.4 MB of trailers",
    ),
    chunks("blank behind the size", SIZE + b" " + WHOLE.removeprefix(SIZE)),
    chunks("blank before the size", b" " + WHOLE),
    chunks("tab behind the size", SIZE + b"\t" + WHOLE.removeprefix(SIZE)),
    chunks("size with 0x", b"0x" + WHOLE),
    chunks("size with a plus", b"+" + WHOLE),
    chunks("size below 0", b"-" + WHOLE),
    chunks("size empty", b"\r\n" + WHOLE),
    chunks("size over 64 bits", b"1" + b"0" * 16 + WHOLE),
    chunks("no CR behind the size", WHOLE.replace(b"\r\n", b"\n", 1)),
    chunks("no CR behind the data", WHOLE.replace(BODY + b"\r\n", BODY + b"\n")),
    chunks("no LF behind the data", WHOLE.replace(BODY + b"\r\n", BODY + b"\r")),
    chunks("nothing behind the data", WHOLE.replace(BODY + b"\r\n", BODY)),
    chunks("other bytes behind the data", WHOLE.replace(BODY + b"\r\n", BODY + b"XX")),
    chunks("last chunk with LF alone", WHOLE.replace(b"\r\n0\r\n", b"\r\n0\n")),
    chunks("last chunk with two LF", WHOLE.replace(b"0\r\n\r\n", b"0\n\n")),
    chunks("last line with LF alone", WHOLE.replace(b"0\r\n\r\n", b"0\r\n\n")),
    served("a trailer", request(WHOLE[:-2] + b"X-A: b\r\n\r\n", framing=CHUNKED)),
    Case("a key in a trailer", request(WITH_KEY, framing=CHUNKED, key=None), (NO_KEY,)),
    chunks("a length in a trailer", WHOLE[:-2] + b"Content-Length: 5\r\n\r\n"),
    chunks("a coding in a trailer", WHOLE[:-2] + CHUNKED + b"\r\n\r\n" + WHOLE),
    chunks("a folded trailer", WHOLE[:-2] + b"X-A: b\r\n c\r\n\r\n"),
    chunks("no CR behind a trailer", WHOLE[:-2] + b"X-A: b\n\r\n"),
    Case("no last chunk", request(WHOLE[:-5], framing=CHUNKED), (INVALID,), "closed"),
    Case("no last line", request(WHOLE[:-2], framing=CHUNKED), (INVALID,), "closed"),
]

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13"
CLOSE = b"Connection: close"
EXPECT = b"Expect: 100-continue"

SEVERAL = [
    served("two requests at once", request() + request(), seen=2),
    served("40 empty lines between two", request() + b"\r\n" * 40 + request(), seen=2),
    Case("32 requests at once", get(b"/health") * 32, ("200",) * 32),
    Case("99 requests at once", get(b"/health") * 99, (*("200",) * 33, INVALID), "closed"),
    Case("a request and no request", request() + b"NONSENSE\r\n\r\n", ("200", INVALID), "closed", seen=1),
    Case("a request and TLS", request() + b"\x16\x03\x01\x02\x00", ("200", INVALID), "closed", seen=1),
    Case("a request behind the last", request(BODY, CLOSE) + HIDDEN, ("200",), "closed", seen=1),
    Case("a request behind one of HTTP/1.0", OLD + HIDDEN, ("200",), "closed", seen=1),
    Case("a request inside a refused upload", request(HIDDEN, key="sk-no"), (NO_KEY,)),
    Case("a refused upload that goes on", request(HIDDEN + BODY, kind=b"text/plain"), (UNSUPPORTED,)),
    Case("a refused upload that is cut", request(framing=MORE, kind=b"text/plain"), (UNSUPPORTED,), "waits"),
    Case(
        "a body longer than its length",
        request(framing=LESS) + HIDDEN,
        ("400 invalid_json", INVALID),
        "closed",
    ),
    Case("GET with a request as its body", request(HIDDEN, first=b"GET /v1/models HTTP/1.1"), ("200",)),
    Case("an offer of h2c", get(b"/v1/models", OFFER), ("200",)),
    served("an offer of h2c with a body", request(BODY, OFFER)),
    served("an offer of h2c with chunks", request(WHOLE, OFFER, framing=CHUNKED)),
    served("an offer of h2c before another request", request(BODY, OFFER) + request(), seen=2),
    served("20 offers of h2c", request(BODY, OFFER) * 20, seen=20),
    Case("an offer of websocket", get(b"/v1/models", WEBSOCKET), ("200",)),
    served("an offer of websocket with a body", request(BODY, WEBSOCKET)),
    Case("HTTP/2 without asking", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04", (INVALID,), "closed"),
    Case("leave to go on, before it is told", request(BODY, EXPECT), ("100", "200"), seen=1),
    Case(
        "no leave to go on",
        request(b"", EXPECT, framing=LENGTH, key="sk-no"),
        (NO_KEY,),
        "closed",
        quiet=True,
    ),
    Case("leave to go on, in HTTP/1.0", request(BODY, EXPECT, first=FIRST_1_0), ("200",), "closed", seen=1),
    Case("leave for something else", request(BODY, b"Expect: cake"), ("200",), seen=1),
]

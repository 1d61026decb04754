"""Does anybody hold a connection for ever by saying little?"""

from tests.hostile.cases import BODY, FIRST, HOST, Case, request

TIMEOUT = "408 request_timeout"
BEGUN = FIRST + b"\r\n" + HOST + b"\r\n"
MORE = b"Content-Length: 100000"


def slow(name: str, say: bytes, *answers: str, drip: bytes = b"", seen: int = 0) -> Case:
    return Case(name, say, answers, "closed", seen, drip=drip, quiet=True)


SLOW = [
    slow("nothing", b""),
    slow("empty lines", b"\r\n", drip=b"\r\n"),
    slow("half a head", BEGUN, TIMEOUT),
    slow("a head, byte by byte", BEGUN + b"X-A: ", TIMEOUT, drip=b"x"),
    slow("a head, header by header", BEGUN, TIMEOUT, drip=b"a: b\r\n"),
    slow("half a head behind a request", request() + BEGUN, "200", TIMEOUT, seen=1),
    slow("a length and no body", request(b"", framing=MORE), TIMEOUT),
    slow("half a body", request(BODY, framing=MORE), TIMEOUT),
    slow("a body, byte by byte", request(b"", framing=MORE), TIMEOUT, drip=b" "),
    slow(
        "chunks, byte by byte",
        request(b"", framing=b"Transfer-Encoding: chunked"),
        TIMEOUT,
        drip=b"1\r\n \r\n",
    ),
    slow(
        "a refused body, byte by byte",
        request(b"", framing=MORE, key="sk-no"),
        "401 invalid_api_key",
        drip=b" ",
    ),
    slow(
        "no body where one was asked for", request(b"", b"Expect: 100-continue", framing=MORE), "100", TIMEOUT
    ),
]

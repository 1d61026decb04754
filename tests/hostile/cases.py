"""What is said to the gateway, and what must come of it?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.conftest import KEY, MODEL
from tests.e2e.callers import CHAT, COMPLETIONS
from tests.fakes import compact

FIRST = b"POST %b HTTP/1.1" % COMPLETIONS.encode()
HOST = b"Host: gateway"
BODY = compact({"model": MODEL, "prompt": [1, 2], "max_tokens": 2})
LENGTH = b"Content-Length: %d" % len(BODY)
INVALID = "400 invalid_http"
SHOWN_BYTES = 72
# What all requests have, and no table needs to tell.
USUAL = (
    FIRST,
    b"POST %b HTTP/1.1" % CHAT.encode(),
    HOST,
    b"Authorization: Bearer " + KEY.encode(),
    b"Content-Type: application/json",
)

Then = Literal["goes on", "closed", "waits"]


@dataclass(frozen=True)
class Case:
    """One connection.

    say: the caller's bytes. drip: what it says again and again, while the connection lasts. quiet: it says no
    more than that; others say their next request at once.
    answers: status and, of an error, its code, in order.
    then: whether the next request is served, or the connection has been ended, or the next bytes are taken
    for what is missing of the last request.
    seen: requests at the worker. means: what those must mean to it, member by member.
    shown: in the table, in place of the bytes.
    """

    name: str
    say: bytes
    answers: Sequence[str]
    then: Then = "goes on"
    seen: int = 0
    means: Mapping[str, Any] = field(default_factory=dict)
    drip: bytes = b""
    quiet: bool = False
    shown: str = ""


def request(
    body: bytes = BODY,
    *lines: bytes,
    first: bytes = FIRST,
    framing: bytes | None = None,
    host: bytes = HOST,
    key: str | None = KEY,
    kind: bytes = b"application/json",
) -> bytes:
    """A request with these lines in its head; of the others, empty ones are left out.

    framing: the lines in place of the length of the body. They come last.
    """
    head = [first, host]
    if key is not None:
        head.append(b"Authorization: Bearer " + key.encode())
    if kind:
        head.append(b"Content-Type: " + kind)
    length = b"Content-Length: %d" % len(body) if framing is None else framing
    return b"\r\n".join([line for line in (*head, *lines, length) if line] + [b"", b""]) + body


# What an attacker would have somebody else send; first lines and the like are shown nowhere.
HIDDEN = request(compact({"model": MODEL, "prompt": [7], "max_tokens": 1}))
HIDDEN_REST = HIDDEN[HIDDEN.index(b"Content-Length") :]


# What is told in fewer words in a table, in this order.
SHORT = {
    HIDDEN_REST: b"(another request)",
    LENGTH + b"\r\n\r\n" + BODY: b"",
    BODY: b"{...}",
    BODY[:-1]: b"{...",
    b'{"model":"smollm2","messages":[{"role":"user","content":[': b"{...[",
}


def get(target: bytes, *lines: bytes, method: bytes = b"GET", key: str | None = KEY) -> bytes:
    """A request without a body."""
    return request(b"", *lines, first=b"%b %b HTTP/1.1" % (method, target), framing=b"", key=key, kind=b"")


def post(path: str, body: bytes = BODY, *lines: bytes, key: str | None = KEY) -> bytes:
    """A request to another path."""
    return request(body, *lines, first=b"POST %b HTTP/1.1" % path.encode(), key=key)


def asked(body: object = None, **fields: Any) -> bytes:
    """A completion with these fields more; or of this body, as it is."""
    plain = {"model": MODEL, "prompt": [1, 2], "max_tokens": 2, **fields}
    return request(body if isinstance(body, bytes) else compact(plain))


def spoken(*parts: object, **fields: Any) -> bytes:
    """A chat whose only message has these parts."""
    messages = [{"role": "user", "content": list(parts)}]
    return post(CHAT, compact({"model": MODEL, "messages": messages, "max_tokens": 2, **fields}))


def served(name: str, say: bytes, *, seen: int = 1, shown: str = "", **means: Any) -> Case:
    """What is in order, and what the worker understands of it."""
    return Case(name, say, ("200",) * seen, seen=seen, means=means, shown=shown)


def refused(name: str, answer: str, say: bytes, shown: str = "") -> Case:
    """A request that is answered with an error, and whose connection goes on."""
    return Case(name, say, (answer,), shown=shown)


def invalid(name: str, say: bytes, shown: str = "") -> Case:
    """What is no request, or could be taken for another."""
    return Case(name, say, (INVALID,), "closed", shown=shown)


def essence(say: bytes) -> str:
    """What makes a case, in a cell of a table: its bytes without what all requests have."""
    for line in USUAL:
        say = say.replace(line + b"\r\n", b"")
    head, _, body = say.partition(b"\r\n\r\n")
    if head == b"Content-Length: %d" % len(body):
        say = body
    for usual, short in SHORT.items():
        say = say.replace(usual, short)
    text = repr(say[:SHOWN_BYTES])[2:-1].replace("|", "\\|").replace("`", "'")
    return f"`{text}`" + (" ..." if len(say) > SHOWN_BYTES else "") if say else ""

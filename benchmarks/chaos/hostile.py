"""What is wrong with a request on purpose, and what may be answered?"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.chaos.calls import Call, Wish
from benchmarks.chaos.raw import send

GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no HTTP at all\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Attack:
    """status: that must be answered, unless it is 503. The others: what stands in place of the usual."""

    status: int
    key: str | None = None
    first: str = ""  # line of the head
    more: str = ""  # lines of the head, besides
    members: Mapping[str, Any] | None = None  # of the body, besides
    body: bytes | None = None
    says: bytes = b""  # in place of it all
    until: int | None = None  # so many bytes of it

    def request(self, wish: Wish, key: str) -> bytes:
        if self.says:
            return self.says
        body = (
            json.dumps({**wish.body(), **(self.members or {})}).encode() if self.body is None else self.body
        )
        head = (
            f"{self.first or f'POST {wish.path} HTTP/1.1'}\r\nhost: gateway\r\n"
            f"authorization: Bearer {key if self.key is None else self.key}\r\nx-request-id: {wish.id}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{self.more}\r\n"
        )
        return (head.encode() + body)[: self.until]


ATTACKS: Mapping[str, Attack] = {
    "a wrong key": Attack(401, key=f"sk-{'x' * 43}"),
    "no key": Attack(401, key=""),
    "no JSON": Attack(400, body=b'{"model": '),
    "NaN": Attack(400, members={"temperature": float("nan")}),
    "a million answers": Attack(400, members={"n": 10**6}),
    "an unknown model": Attack(404, members={"model": "no"}),
    "two framings": Attack(400, more="transfer-encoding: chunked\r\n"),
    "two lengths": Attack(400, more="content-length: 3\r\n"),
    "a huge head": Attack(431, more=f"x-huge: {'x' * 100_000}\r\n"),
    "another path": Attack(404, first="POST /v1/../tokenize HTTP/1.1"),
    "another method": Attack(405, first="PUT /v1/completions HTTP/1.1"),
    "no HTTP": Attack(400, says=GARBAGE),
    "half a head": Attack(408, until=60),
    "half a body": Attack(408, until=-5),
}


async def attack(name: str, wish: Wish, key: str, replica: int, port: int) -> Call:
    """Make it, on a connection of its own."""
    how = ATTACKS[name]
    plain = replace(
        wish, stream=False, with_usage=False, leaves_after_s=None, leaves_after_tokens=None, pause_s=0.0
    )
    call = Call(plain, name, replica, time.time(), attempts=[wish.id], expected=how.status)
    await send(call, how.request(plain, key), port)
    return call

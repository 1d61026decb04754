"""Which key does a request present? Headers → the SHA-256 of the key."""

import re
from hashlib import sha256

from gateway.model import Headers

# What is hashed at all: visible ASCII, so that "key", "key " and a megabyte never meet the key table.
BEARER = re.compile(rb"(?i:bearer) ([!-~]{1,512})").fullmatch


def digest_of(headers: Headers) -> bytes | None:
    """The SHA-256 of the presented key, 32 bytes; None if there is none, or if it is unclear which."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    match = BEARER(values[0])
    return None if match is None else sha256(match[1]).digest()

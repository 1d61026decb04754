"""Which key does a request present? Headers → the SHA-256 of the key."""

import re
from hashlib import sha256

from gateway.model import Fields

# What is hashed at all: visible ASCII, so that "key", "key " and a megabyte never meet the key table, nor do
# two keys, which are joined by a comma and a space.
BEARER = re.compile(rb"(?i:bearer) ([!-~]{1,512})").fullmatch


def digest_of(fields: Fields) -> bytes | None:
    """The SHA-256 of the presented key, 32 bytes; None if there is none, or if it is unclear which."""
    match = BEARER(fields.get(b"authorization", b""))
    return None if match is None else sha256(match[1]).digest()

"""Whose request is this? Headers → Caller."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import Unauthorized
from gateway.model import Caller, Headers, Tenant

# What is hashed at all: visible ASCII, so that "key", "key " and a megabyte never meet the key table.
PLAUSIBLE = re.compile(rb"[!-~]{1,512}").fullmatch


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a tenant, known by its hash alone."""

    id: str
    sha256: str  # lower-case hex, of the whole key


class Authenticator:
    """Looks keys up by hash. `anonymous`, if given, is who everybody without a known key is."""

    def __init__(
        self, keys: Mapping[Key, Tenant], salt_secret: bytes, anonymous: Tenant | None = None
    ) -> None:
        def caller(tenant: Tenant, key_id: str) -> Caller:
            salt = hmac.digest(salt_secret, tenant.id.encode(), "sha256").hex()
            return Caller(tenant, key_id, salt)

        self._callers = {bytes.fromhex(key.sha256): caller(tenant, key.id) for key, tenant in keys.items()}
        self._anonymous = caller(anonymous, "") if anonymous else None

    def identify(self, headers: Headers) -> Caller:
        """Raises Unauthorized, the same for every reason."""
        by_name = dict(headers)
        value = by_name.get(b"authorization")
        if value is not None and len(by_name) != len(headers) and _count(headers, b"authorization") > 1:
            value = None  # which of them would be meant?
        caller = (None if value is None else self._look_up(value)) or self._anonymous
        if caller is None:
            raise Unauthorized
        return caller

    def _look_up(self, value: bytes) -> Caller | None:
        scheme, _, key = value.partition(b" ")
        if scheme.lower() != b"bearer" or not PLAUSIBLE(key):
            return None
        # The table is searched by the hash of what was sent: how long that takes tells nothing of any key.
        return self._callers.get(hashlib.sha256(key).digest())


def _count(headers: Headers, wanted: bytes) -> int:
    return sum(name == wanted for name, _ in headers)

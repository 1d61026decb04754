"""Is this the operator? Headers → nothing, or a refusal."""

import hashlib
import hmac
import re

from gateway.errors import CallerError, Unauthorized
from gateway.model import Headers

# As for tenants' keys: what is hashed at all is visible ASCII of bounded length.
_bearer = re.compile(rb"bearer ([!-~]{1,512})", re.IGNORECASE).fullmatch


class AdminApiClosed(CallerError):
    """No admin key is configured."""

    status = 403
    type = "permission_denied"
    code = "admin_api_closed"

    def __init__(self) -> None:
        super().__init__(
            "The admin API is closed: it has no key. Make one with 'gateway keys admin', which prints the "
            "lines for the configuration, and start the gateway anew."
        )


class AdminKey:
    """The one key that opens the admin API. sha256: in hex, of the whole key; None keeps it closed."""

    def __init__(self, sha256: str | None) -> None:
        self._digest = bytes.fromhex(sha256) if sha256 else None

    def check(self, headers: Headers) -> None:
        """Raises AdminApiClosed, or Unauthorized, the same for every reason."""
        if self._digest is None:
            raise AdminApiClosed
        values = [value for name, value in headers if name == b"authorization"]
        sent = _bearer(values[0]) if len(values) == 1 else None  # of several, which would be meant?
        if sent is None or not hmac.compare_digest(hashlib.sha256(sent[1]).digest(), self._digest):
            raise Unauthorized

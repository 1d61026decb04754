"""How is a key made? Its secret carries its id, so that who finds one knows which key to revoke."""

import hashlib
import secrets

RANDOM_BYTES = 32  # of a secret: beyond guessing, so that a plain SHA-256 keeps it safe
ID_BYTES = 4
LONGEST_TENANT = 48  # characters of the tenant's id that go into a key's: with the rest within 64


def new_id(tenant: str) -> str:
    """An id for a key of that tenant."""
    return f"{tenant[:LONGEST_TENANT]}-{secrets.token_hex(ID_BYTES)}"


def new_secret(key_id: str) -> str:
    return f"sk-{key_id}-{secrets.token_urlsafe(RANDOM_BYTES)}"


def sha256(secret: str) -> str:
    """In lower-case hex, as it is kept and looked up."""
    return hashlib.sha256(secret.encode()).hexdigest()

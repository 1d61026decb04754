"""What is kept of keys and tenants, and in which state is a key? Times are seconds since 1970."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.settings import TenantSettings

Source = Literal["file", "redis"]
State = Literal["active", "expired", "revoked"]
Addition = Literal["added", "taken", "no tenant"]  # what became of a key that a store was to take


# Unknown fields are refused: what a newer version wrote there may be a restriction, and a record that is
# half understood would open more than it should.
class SecretRecord(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One secret of a key, known by its hash alone."""

    sha256: str  # lower-case hex, of the whole secret
    expires_at: float | None = None

    def is_good(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at


class KeyRecord(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key: a public id, and the secrets that open the door in its name."""

    id: str
    tenant: str
    secrets: Annotated[tuple[SecretRecord, ...], Meta(min_length=1)]  # the newest first
    created_at: float | None = None  # None: the file does not say
    revoked_at: float | None = None
    source: Source = "redis"

    @property
    def expires_at(self) -> float | None:
        """When the last of its secrets expires; None: never."""
        ends = [secret.expires_at for secret in self.secrets]
        return None if None in ends else max(end for end in ends if end is not None)

    def state(self, now: float) -> State:
        if self.revoked_at is not None:
            return "revoked"
        return "active" if any(secret.is_good(now) for secret in self.secrets) else "expired"


class TenantRecord(Struct, frozen=True):
    settings: TenantSettings
    source: Source


class NewKey(Struct, frozen=True):
    """A key with its newest secret, which nobody can show again."""

    record: KeyRecord
    secret: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.record.id!r})"

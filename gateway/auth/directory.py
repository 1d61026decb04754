"""Where are keys written down? In the configuration file, and in a directory that is asked for the others."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from gateway.model import Grant, Tenant
from gateway.settings import KeySettings, TenantSettings


class Found(Protocol):
    """A key as a directory has it: neither revoked nor unknown."""

    @property
    def key_id(self) -> str: ...

    @property
    def tenant_id(self) -> str: ...

    @property
    def tenant(self) -> Tenant | None:
        """None if the directory has only the key; the file may have its tenant."""
        ...

    @property
    def expires_at(self) -> float | None:
        """Seconds since 1970; None is never."""
        ...


class Directory(Protocol):
    """Keys beyond those of the file, which change while the gateway runs."""

    async def find(self, sha256: str) -> Found | None:
        """The key of this hash (of the whole key, lower-case hex). Raises StoreUnavailable, within the time
        that one step of the store may take."""
        ...


class FileDirectory:
    """The tenants and keys of one reading of the configuration file. It does not change."""

    __slots__ = ("grants", "tenants")

    def __init__(self, tenants: Iterable[TenantSettings], keys: Iterable[KeySettings]) -> None:
        """`keys` name no tenant that is not there."""
        self.tenants: Mapping[str, Tenant] = {of.id: of.tenant() for of in tenants}
        self.grants: Mapping[bytes, Grant] = {
            bytes.fromhex(of.sha256): _grant(of, self.tenants[of.tenant]) for of in keys
        }
        """By the SHA-256 of the key."""


def _grant(key: KeySettings, tenant: Tenant) -> Grant:
    return Grant(tenant, key.id, None if key.expires_at is None else key.expires_at.timestamp())

"""What may be done to keys and tenants? Those of the file are read; those of the store are changed, too."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from gateway.errors import BadRequest, Conflict, NotFound
from gateway.keyring import minting
from gateway.keyring.records import Addition, KeyRecord, NewKey, SecretRecord, TenantRecord
from gateway.settings import KeySettings, Settings, TenantSettings
from gateway.settings.values import Identifier

GRACE_S = 3600.0
MAX_GRACE_S = 365 * 86400.0
END_OF_TIME = 253402300800.0  # year 10000, which ISO-8601 cannot write
_IDENTIFIER: TypeAdapter[str] = TypeAdapter(Identifier)
_SHOWN_KEYS = 5  # of those that stand in the way


class TenancyStore(Protocol):
    """Where keys and tenants are that can be changed. Each verb is one atomic act; all raise
    StoreUnavailable."""

    async def keys(self) -> list[KeyRecord]: ...

    async def add_key(self, record: KeyRecord, *, needs_tenant: bool) -> Addition:
        """needs_tenant: only if the store has the tenant."""
        ...

    async def change_key(self, key_id: str, step: Callable[[KeyRecord], KeyRecord]) -> KeyRecord | None:
        """The record after `step`; None if there is no such key. A step may run more than once, as others
        change the record meanwhile, and what it raises comes out."""
        ...

    async def tenants(self) -> list[TenantSettings]: ...

    async def tenant(self, tenant_id: str) -> TenantSettings | None: ...

    async def put_tenant(self, settings: TenantSettings) -> None: ...

    async def remove_tenant(self, tenant_id: str, now: float) -> list[str]:
        """Keeps it if it has keys that are active at `now`: returns their ids."""
        ...


class Keyring:
    """All keys and tenants there are. `store`: None where the file is the only place."""

    def __init__(
        self,
        file_tenants: Iterable[TenantSettings],
        file_keys: Iterable[KeySettings],
        store: TenancyStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tenants = {of.id: of for of in file_tenants}
        self._keys = {of.id: _of_file(of) for of in file_keys}

    def replace(self, settings: Settings) -> None:
        """Take tenants and keys of a file that changed."""
        self._tenants = {of.id: of for of in settings.tenants}
        self._keys = {of.id: _of_file(of) for of in settings.keys}

    async def keys(self, tenant: str | None = None) -> list[KeyRecord]:
        """All, or those of one tenant: by tenant and id, with those that are no longer good."""
        stored = await self._store.keys() if self._store else []
        found = [of for of in (*self._keys.values(), *stored) if tenant in (None, of.tenant)]
        return sorted(found, key=lambda of: (of.tenant, of.id))

    def draft(self, tenant: str, key_id: str | None = None, expires_at: float | None = None) -> NewKey:
        """A key that is kept nowhere yet. Raises BadRequest, or Conflict if the file has its id."""
        now = self._clock()
        if expires_at is not None and not now < expires_at < END_OF_TIME:
            raise BadRequest("expires_at must be a time to come, before the year 10000.", param="expires_at")
        key_id = _checked(minting.new_id(tenant) if key_id is None else key_id)
        if key_id in self._keys:
            raise _taken(key_id)
        secret = minting.new_secret(key_id)
        kept = SecretRecord(minting.sha256(secret), expires_at)
        return NewKey(KeyRecord(key_id, tenant, (kept,), created_at=now), secret)

    async def create(self, tenant: str, key_id: str | None = None, expires_at: float | None = None) -> NewKey:
        """Make a key and keep it. Raises BadRequest, NotFound, Conflict."""
        store = self._changeable("Keys", "gateway keys create prints what to add")
        new = self.draft(tenant, key_id, expires_at)
        addition = await store.add_key(new.record, needs_tenant=tenant not in self._tenants)
        if addition == "taken":
            raise _taken(new.record.id)
        if addition == "no tenant":
            raise _no_tenant(tenant)
        return new

    async def rotate(self, key_id: str, grace_s: float = GRACE_S) -> NewKey:
        """Give a key a new secret; earlier ones stay good for `grace_s`, or their own time if that ends
        before. Raises BadRequest, NotFound, Conflict."""
        if not 0 <= grace_s <= MAX_GRACE_S:
            raise BadRequest(f"grace_s must be from 0 to {MAX_GRACE_S:.0f} seconds.", param="grace_s")
        secret = minting.new_secret(key_id)
        step = functools.partial(_rotated, sha256=minting.sha256(secret), grace_s=grace_s, now=self._clock())
        remedy = (
            "add a second key of its tenant, which gateway keys create makes, and give this one expires_at"
        )
        return NewKey(await self._change(key_id, step, remedy), secret)

    async def revoke(self, key_id: str) -> KeyRecord:
        """Refuse a key from now on. Once more is no mistake. Raises NotFound, Conflict."""
        now = self._clock()
        return await self._change(key_id, lambda record: _revoked(record, now), "delete its entry")

    async def tenants(self) -> list[TenantRecord]:
        """By id; where both have one of that id, the file's holds."""
        stored = await self._store.tenants() if self._store else []
        records = {of.id: TenantRecord(of, "redis") for of in stored}
        records |= {of.id: TenantRecord(of, "file") for of in self._tenants.values()}
        return [records[tenant_id] for tenant_id in sorted(records)]

    async def tenant(self, tenant_id: str) -> TenantRecord:
        """Raises NotFound."""
        if tenant_id in self._tenants:
            return TenantRecord(self._tenants[tenant_id], "file")
        stored = await self._store.tenant(tenant_id) if self._store else None
        if stored is None:
            raise _no_tenant(tenant_id)
        return TenantRecord(stored, "redis")

    async def put_tenant(self, settings: TenantSettings) -> TenantRecord:
        """Make a tenant, or give it other settings. Raises Conflict."""
        store = self._changeable_tenant(settings.id)
        await store.put_tenant(settings)
        return TenantRecord(settings, "redis")

    async def delete_tenant(self, tenant_id: str) -> None:
        """Raises NotFound, or Conflict while keys of it are active."""
        store = self._changeable_tenant(tenant_id)
        if await store.tenant(tenant_id) is None:
            raise _no_tenant(tenant_id)
        if active := await store.remove_tenant(tenant_id, self._clock()):
            more = " and more" if len(active) > _SHOWN_KEYS else ""
            raise Conflict(
                f'Tenant "{tenant_id}" has active keys: {", ".join(sorted(active)[:_SHOWN_KEYS])}{more}. '
                "Revoke them first."
            )

    async def _change(
        self, key_id: str, step: Callable[[KeyRecord], KeyRecord], remedy_in_file: str
    ) -> KeyRecord:
        # The store before the file: should both have the id, a key that can be revoked must not be safe
        # behind one that cannot.
        record = await self._store.change_key(key_id, step) if self._store else None
        if record is not None:
            return record
        if key_id in self._keys:
            raise Conflict(
                f'Key "{key_id}" is kept in the configuration file, not here: {remedy_in_file} under '
                "[[keys]] there. A running gateway reads the file again by itself."
            )
        raise NotFound(
            f'There is no key "{key_id}". List those there are: gateway keys list, or GET /admin/keys.',
            code="key_not_found",
        )

    def _changeable_tenant(self, tenant_id: str) -> TenancyStore:
        if tenant_id in self._tenants:
            raise Conflict(
                f'Tenant "{tenant_id}" is kept in the configuration file, not here: edit it under '
                "[[tenants]] there. A running gateway reads the file again by itself."
            )
        return self._changeable("Tenants", "edit [[tenants]]")

    def _changeable(self, what: str, remedy: str) -> TenancyStore:
        if self._store is None:
            raise Conflict(
                f'{what} are kept in the configuration file alone, as store.url is "memory://": {remedy} '
                "there, or name a Redis in store.url."
            )
        return self._store


def _of_file(key: KeySettings) -> KeyRecord:
    expires_at = None if key.expires_at is None else key.expires_at.timestamp()
    return KeyRecord(key.id, key.tenant, (SecretRecord(key.sha256, expires_at),), source="file")


def _checked(key_id: str) -> str:
    try:
        return _IDENTIFIER.validate_python(key_id)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadRequest(f"A key's id {reason}.", param="id") from None


def _taken(key_id: str) -> Conflict:
    return Conflict(f'There is a key "{key_id}" already. Choose another id, or rotate that one.', param="id")


def _no_tenant(tenant_id: str) -> NotFound:
    return NotFound(
        f'There is no tenant "{tenant_id}". Add it to [[tenants]] in the configuration file, or, with a '
        "Redis store, by PUT /admin/tenants/{id}.",
        code="tenant_not_found",
    )


def _rotated(record: KeyRecord, sha256: str, grace_s: float, now: float) -> KeyRecord:
    state = record.state(now)
    if state != "active":
        raise Conflict(f'Key "{record.id}" is {state}. Create a new one in its place.')
    cut = now + grace_s
    earlier = (
        replace(of, expires_at=cut if of.expires_at is None else min(cut, of.expires_at))
        for of in record.secrets
    )
    # The new secret ends when the key was to end: to rotate is not to prolong.
    newest = SecretRecord(sha256, record.expires_at)
    return replace(record, secrets=(newest, *(of for of in earlier if of.is_good(now))))


def _revoked(record: KeyRecord, now: float) -> KeyRecord:
    return record if record.revoked_at is not None else replace(record, revoked_at=now)

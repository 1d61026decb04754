"""Where do keys and tenants stand in Redis? Three hashes, changed in whole steps that are told to all.

    <prefix>:keys     a key's id  → its record, in JSON
    <prefix>:digests  the SHA-256 of a secret → the key's id
    <prefix>:tenants  a tenant's id → its settings, in JSON, without those that have their default

They have no expiry: nothing else knows what is in them. A record that this version cannot read, because a
newer one wrote it or somebody's hand broke it, is passed over and opens nothing.
"""

import logging
from collections.abc import Callable, Iterable
from importlib.resources import files

import msgspec
from pydantic import ValidationError
from redis import WatchError
from redis.asyncio import Redis

from gateway.errors import Conflict
from gateway.keyring.records import Addition, KeyRecord
from gateway.model import Tenant
from gateway.settings import TenantSettings
from gateway.stores.redis.bulletin import channel
from gateway.stores.redis.failures import translated

log = logging.getLogger(__name__)

PAGE = 1000  # records a call: Redis serves others between two of them
ATTEMPTS = 20  # of a change that others' changes interrupt
_WRITTEN, _OUTDATED = 1, 0  # what write_key.lua answers
_decoder = msgspec.json.Decoder(KeyRecord)
_encoder = msgspec.json.Encoder()


class Found(msgspec.Struct, frozen=True):
    """What a secret opens. `tenant` is None where Redis does not have it."""

    key_id: str
    tenant_id: str
    tenant: Tenant | None
    expires_at: float | None


class RedisRegistry:
    """A TenancyStore, and what authentication asks. `client` decodes responses; whoever made it closes it."""

    def __init__(self, client: Redis, prefix: str = "gateway") -> None:
        self._client = client
        self._keys = f"{prefix}:keys"
        self._digests = f"{prefix}:digests"
        self._tenants = f"{prefix}:tenants"
        self._hashes = (self._digests, self._keys, self._tenants)
        self._channel = channel(prefix)
        self._find = client.register_script(_script("find_secret"))
        self._write = client.register_script(_script("write_key"))
        self._unreadable: set[tuple[str, str]] = set()  # of which it was said

    async def find(self, sha256: str) -> Found | None:
        """What the secret with this hash opens; None if it is unknown, expired or revoked.

        One round trip. Raises StoreUnavailable.
        """
        with translated():
            answer = await self._find(keys=self._hashes, args=[sha256])
        if answer is None:
            return None
        key_id, key, tenant, (seconds, microseconds) = answer
        record = self._read_key(key_id, key)
        now = int(seconds) + int(microseconds) / 1e6
        if record is None or record.revoked_at is not None:
            return None
        for secret in record.secrets:
            if secret.sha256 == sha256 and secret.is_good(now):
                settings = None if tenant is None else self._read_tenant(record.tenant, tenant)
                return Found(
                    key_id, record.tenant, settings.tenant() if settings else None, secret.expires_at
                )
        return None

    async def keys(self) -> list[KeyRecord]:
        found = [self._read_key(key_id, text) for key_id, text in (await self._all(self._keys)).items()]
        return [record for record in found if record is not None]

    async def add_key(self, record: KeyRecord, *, needs_tenant: bool) -> Addition:
        written = await self._replace(record, before="", tenant=record.tenant if needs_tenant else "")
        if written == _WRITTEN:
            return "added"
        return "taken" if written == _OUTDATED else "no tenant"

    async def change_key(self, key_id: str, step: Callable[[KeyRecord], KeyRecord]) -> KeyRecord | None:
        for _ in range(ATTEMPTS):
            before = await self._get(self._keys, key_id)
            if before is None:
                return None
            record = self._read_key(key_id, before)
            if record is None:
                raise Conflict(
                    f'Key "{key_id}" opens nothing: this version cannot read its record. Change it with the '
                    f"version that wrote it, or remove it: HDEL {self._keys} {key_id}."
                )
            changed = step(record)
            dropped = {of.sha256 for of in record.secrets} - {of.sha256 for of in changed.secrets}
            if await self._replace(changed, before=before, dropped=dropped) == _WRITTEN:
                return changed
        raise _too_busy(f'key "{key_id}"')

    async def tenants(self) -> list[TenantSettings]:
        found = [self._read_tenant(name, text) for name, text in (await self._all(self._tenants)).items()]
        return [settings for settings in found if settings is not None]

    async def tenant(self, tenant_id: str) -> TenantSettings | None:
        text = await self._get(self._tenants, tenant_id)
        return None if text is None else self._read_tenant(tenant_id, text)

    async def put_tenant(self, settings: TenantSettings) -> None:
        # What has its default is left out: an older version can read what does not use the newest settings.
        text = settings.model_dump_json(exclude_defaults=True)
        async with self._client.pipeline() as change:
            change.hset(self._tenants, settings.id, text)
            change.publish(self._channel, f"tenant:{settings.id}")
            with translated():
                await change.execute()

    async def remove_tenant(self, tenant_id: str, now: float) -> list[str]:
        for _ in range(ATTEMPTS):
            with translated():
                try:
                    return await self._remove_tenant(tenant_id, now)
                except WatchError:
                    continue
        raise _too_busy(f'tenant "{tenant_id}"')

    async def _remove_tenant(self, tenant_id: str, now: float) -> list[str]:
        """Raises WatchError if a key was made or changed meanwhile, which may be one of this tenant."""
        async with self._client.pipeline() as change:
            await change.watch(self._keys)
            of_tenant = [record for record in await self.keys() if record.tenant == tenant_id]
            active = [record.id for record in of_tenant if record.state(now) == "active"]
            if not active:
                change.multi()  # type: ignore[no-untyped-call]
                change.hdel(self._tenants, tenant_id)
                change.publish(self._channel, f"tenant:{tenant_id}")
                await change.execute()
            return active

    async def _replace(
        self, record: KeyRecord, *, before: str, tenant: str = "", dropped: Iterable[str] = ()
    ) -> int:
        """What write_key.lua answers. A revoked key's secrets lead to it no longer."""
        leading = [of.sha256 for of in record.secrets]
        if record.revoked_at is not None:
            leading, dropped = [], [*leading, *dropped]
        news = [self._channel, f"key:{record.id}"]
        after = _encoder.encode(record).decode()
        args = [record.id, before, after, tenant, *news, str(len(leading)), *leading, *dropped]
        with translated():
            return int(await self._write(keys=self._hashes, args=args))

    async def _get(self, name: str, field: str) -> str | None:
        with translated():
            text = await self._client.hget(name, field)
        return None if text is None else str(text)

    async def _all(self, name: str) -> dict[str, str]:
        """All of a hash, of which Redis may tell some twice."""
        with translated():
            return {field: text async for field, text in self._client.hscan_iter(name, count=PAGE)}

    def _read_key(self, key_id: str, text: str) -> KeyRecord | None:
        try:
            record = _decoder.decode(text)
            if (record.id, record.source) != (key_id, "redis"):
                raise msgspec.ValidationError("it is not of this key")
        except msgspec.MsgspecError as error:  # its text tells places and types, no values
            self._pass_over(self._keys, key_id, str(error))
            return None
        self._unreadable.discard((self._keys, key_id))
        return record

    def _read_tenant(self, tenant_id: str, text: str) -> TenantSettings | None:
        try:
            settings = TenantSettings.model_validate_json(text, strict=True)
            if settings.id != tenant_id:
                raise ValueError("it is not of this tenant")
        except ValueError as error:  # pydantic's is one, whose text would tell values
            told = error.errors() if isinstance(error, ValidationError) else []
            reason = "; ".join(f"{'.'.join(map(str, of['loc']))}: {of['type']}" for of in told) or str(error)
            self._pass_over(self._tenants, tenant_id, reason)
            return None
        self._unreadable.discard((self._tenants, tenant_id))
        return settings

    def _pass_over(self, name: str, field: str, reason: str) -> None:
        if (name, field) not in self._unreadable:
            self._unreadable.add((name, field))
            log.warning("%r of %s in Redis cannot be read, and opens nothing: %s", field, name, reason)


def _script(name: str) -> str:
    return files("gateway.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")


def _too_busy(what: str) -> Conflict:
    return Conflict(f"Others change {what}, or keys, at this moment. Try again.")

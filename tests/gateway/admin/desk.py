"""How do tests use the admin API without a socket? Each answer is checked against the API's own document."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

from redis.asyncio import Redis

from gateway import settings
from gateway.admin import AdminKey, Keys, Metering, Tenants, Workers, admin_app
from gateway.admin.description import admin_document
from gateway.errors import StoreUnavailable
from gateway.fleet import Fleet, LocalSwitch, Member, Roster
from gateway.keyring import Keyring
from gateway.settings import KeySettings, TenantSettings
from gateway.stores.redis.registry import RedisRegistry
from gateway.usage import UsageRow
from tests.conftest import sha256
from tests.documented import Documented
from tests.gateway.test_asgi import JSON, part
from tests.gateway.test_model import Clock
from tests.gateway.visiting import Seen, visit

ADMIN_KEY = "sk-admin-0123456789"
BEARER = (b"authorization", b"Bearer " + ADMIN_KEY.encode())
NOW = 1_796_000_000.0  # 2026-11-30T00:53:20Z


class FakeUsage:
    """A meter that has these rows, and notes what it was asked for."""

    def __init__(self, *rows: UsageRow) -> None:
        self.rows = rows
        self.asked: list[tuple[date, date, str | None]] = []
        self.is_away = False

    async def report(self, first: date, last: date, tenant: str | None = None) -> list[UsageRow]:
        self.asked.append((first, last, tenant))
        if self.is_away:
            raise StoreUnavailable("Later.", retry_after_s=1, detail="ConnectionError: refused")
        return list(self.rows)


class Desk:
    """A whole admin port. The file has the tenant "acme" with the key "acme-1"."""

    def __init__(
        self, store: RedisRegistry | None = None, key_sha256: str | None = sha256(ADMIN_KEY)
    ) -> None:
        self.clock = Clock(NOW)
        self.store = store
        self.usage = FakeUsage()
        self.fleet = Fleet(settings.Fleet(), [Member("w0", "small", 4, up=True), Member("w1", "large", 8)])
        acme = TenantSettings(id="acme", requests_per_minute=600)
        in_file = KeySettings(id="acme-1", tenant="acme", sha256=sha256("sk-acme"))
        keyring = Keyring([acme], [in_file], store, self.clock)
        resources = (
            Keys(keyring, self.clock),
            Tenants(keyring),
            Metering(self.usage, self.clock),
            Workers(self.fleet, Roster(self.fleet, LocalSwitch())),
        )
        operations = [operation for resource in resources for operation in resource.operations()]
        self.documented = Documented(admin_document(operations))
        self.app = admin_app(self._metrics, AdminKey(key_sha256), resources)

    @property
    def registry(self) -> RedisRegistry:
        assert self.store is not None
        return self.store

    async def _metrics(self) -> bytes:
        return b"gateway_up 1\n"

    async def ask(
        self, method: str, path: str, content: Any = None, *headers: tuple[bytes, bytes], key: bool = True
    ) -> Seen:
        """content: JSON as bytes, or what becomes JSON."""
        sent = [*headers, *([BEARER] if key else [])]
        if content is not None:
            sent.append(JSON)
        body = (
            content
            if isinstance(content, bytes)
            else b""
            if content is None
            else json.dumps(content).encode()
        )
        seen = await visit(self.app, path, *sent, method=method, messages=(part(body),))
        is_json = seen.headers["content-type"] == "application/json"
        content = seen.json() if is_json else seen.text.decode()
        self.documented.check(method, path, seen.status, seen.headers, content)
        if path.startswith("/admin"):
            assert seen.headers["cache-control"] == "no-store"
        return seen


@asynccontextmanager
async def desk_on(redis_url: str) -> AsyncIterator[Desk]:
    """A desk that keeps keys and tenants in this Redis."""
    client = Redis.from_url(redis_url, decode_responses=True)
    try:
        yield Desk(RedisRegistry(client))
    finally:
        await client.aclose()

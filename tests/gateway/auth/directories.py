"""What do tests of keys start from? Keys, headers that present them, and a directory that does as told."""

import asyncio
import hashlib

from msgspec import Struct

from gateway.errors import StoreUnavailable
from gateway.model import Fields, Tenant
from gateway.settings import KeySettings

SECRET = "sk-acme-1-0123456789"


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def bearing(secret: str) -> Fields:
    return {b"host": b"localhost", b"authorization": b"Bearer " + secret.encode()}


def file_key(secret: str = SECRET, id: str = "acme-1", tenant: str = "acme", **more: object) -> KeySettings:
    return KeySettings.model_validate({"id": id, "tenant": tenant, "sha256": digest(secret).hex(), **more})


class Key(Struct, frozen=True):
    """A key as a directory finds it."""

    key_id: str
    tenant_id: str
    tenant: Tenant | None = None
    expires_at: float | None = None


ACME = Tenant("acme", max_concurrency=1)
REMOTE = Key("acme-r", "acme", ACME)


class FakeDirectory:
    """Keys by secret. It answers at once, or what was true when it was asked once it is let."""

    def __init__(self, keys: dict[str, Key] | None = None) -> None:
        self.keys = keys or {}
        self.is_away = False
        self.bug: Exception | None = None
        self.calls = 0  # so far
        self.busy = 0  # at the moment
        self._asked: asyncio.Queue[None] = asyncio.Queue()
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    def hold(self) -> None:
        self._may_answer.clear()

    def let(self) -> None:
        self._may_answer.set()

    async def asked(self, times: int = 1) -> None:
        """Wait until it has been asked so often since the last such wait."""
        for _ in range(times):
            await self._asked.get()

    async def find(self, sha256: str) -> Key | None:
        found = {digest(secret).hex(): key for secret, key in self.keys.items()}.get(sha256)
        self.calls += 1
        self.busy += 1
        self._asked.put_nowait(None)
        try:
            await self._may_answer.wait()
        finally:
            self.busy -= 1
        if self.bug:
            raise self.bug
        if self.is_away:
            raise StoreUnavailable("The store is away.", retry_after_s=1)
        return found


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


async def quiet() -> None:
    """Wait until no look for a key is under way."""
    looks = [task for task in asyncio.all_tasks() if task.get_name() == "look for a key"]
    if looks:
        await asyncio.wait(looks)

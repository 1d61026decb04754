"""Does what another process does to a key reach an Authenticator through a real Redis, as it is done?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from redis.asyncio import Redis

from gateway.auth import Authenticator, FileDirectory
from gateway.errors import StoreUnavailable, Unauthorized
from gateway.keyring import Keyring
from gateway.settings import Store, TenantSettings
from gateway.stores.redis.bulletin import Bulletin
from gateway.stores.redis.registry import RedisRegistry
from gateway.stores.redis.target import Target
from tests.gateway.auth.directories import Clock, bearing
from tests.redis_server import RedisServer

ACME = TenantSettings(id="acme")
DEADLINE_S = 20


class Shared:
    """An Authenticator that listens, and the keyring of another process.

    No answer of Redis grows old: what changes has been heard of.
    """

    def __init__(self, client: Redis, other: Redis) -> None:
        self.registry = RedisRegistry(client)
        self.auth = Authenticator(
            FileDirectory([ACME], []), b"secret", directory=self.registry, monotonic=Clock(0.0)
        )
        self.elsewhere = Keyring([ACME], [], RedisRegistry(other))
        self._told: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, news: str) -> None:
        self.auth.forget(news)
        self._told.put_nowait(news)

    async def heard(self) -> str:
        """The next news, which are heeded by then."""
        return await self._told.get()

    async def key_id(self, secret: str) -> str:
        """Whose it is; "" if it is refused."""
        try:
            return (await self.auth.identify(bearing(secret))).key_id
        except Unauthorized:
            return ""


@asynccontextmanager
async def shared(url: str) -> AsyncIterator[Shared]:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            target = Target(Store(url=url, timeout_ms=500))
            stack.push_async_callback(target.aclose)
            clients.append(await stack.enter_async_context(target.client()))
        made = Shared(*clients)
        stack.push_async_callback(made.auth.aclose)
        listening = Bulletin(clients[0]).listening(made.hear, lambda: made.hear("all"))
        await stack.enter_async_context(listening)
        assert await made.heard() == "all"
        yield made


async def test_a_key_that_another_process_makes_opens_as_soon_as_its_news_are_here(redis_url: str) -> None:
    async with shared(redis_url) as here:
        draft = here.elsewhere.draft("acme", "early")
        assert await here.key_id(draft.secret) == ""
        assert await here.registry.add_key(draft.record, needs_tenant=False) == "added"
        assert await here.heard() == "key:early"
        assert await here.key_id(draft.secret) == "early"
        assert here.auth.recognise(bearing(draft.secret)) is not None


async def test_a_key_that_another_process_revokes_is_refused_as_soon_as_its_news_are_here(
    redis_url: str,
) -> None:
    async with shared(redis_url) as here:
        kept, lost = [(await here.elsewhere.create("acme", name)).secret for name in ("kept", "lost")]
        assert [await here.heard(), await here.heard()] == ["key:kept", "key:lost"]
        assert [await here.key_id(kept), await here.key_id(lost)] == ["kept", "lost"]

        await here.elsewhere.revoke("lost")

        assert await here.heard() == "key:lost"
        assert here.auth.recognise(bearing(lost)) is None
        assert await here.key_id(lost) == ""
        assert here.auth.recognise(bearing(kept)) is not None


@pytest.mark.parametrize("grace_s", [0, 60])
async def test_after_a_rotation_elsewhere_the_old_secret_is_good_for_the_grace_and_the_new_at_once(
    redis_url: str, grace_s: float
) -> None:
    async with shared(redis_url) as here:
        old = (await here.elsewhere.create("acme", "turning")).secret
        await here.heard()
        assert await here.key_id(old) == "turning"

        new = (await here.elsewhere.rotate("turning", grace_s)).secret

        assert await here.heard() == "key:turning"
        assert await here.key_id(new) == "turning"
        assert await here.key_id(old) == ("turning" if grace_s else "")


async def test_a_redis_that_was_away_ends_no_known_key_and_one_that_comes_back_empty_does() -> None:
    with RedisServer() as server:
        async with shared(server.url) as here:
            secret = (await here.elsewhere.create("acme", "held")).secret
            await here.heard()
            assert await here.key_id(secret) == "held"

            server.kill()
            here.auth.forget("all")
            assert await here.key_id(secret) == "held"
            with pytest.raises(StoreUnavailable):
                await here.key_id("sk-unknown")

            server.start()
            assert await here.heard() == "all"
            assert await here.key_id(secret) == ""

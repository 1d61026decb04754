"""Does the store's URL decide what stands behind a gateway?"""

import asyncio
from contextlib import AsyncExitStack

from gateway.backing import Backing, backing
from gateway.configuration import parse
from gateway.model import Tenant
from gateway.settings import Settings
from gateway.stores.fallback import FallbackLimits
from gateway.stores.memory import MemoryStore
from tests.conftest import MODEL, configuration

WORKER = {"id": "w0", "url": "http://127.0.0.1:9", "model": MODEL}


def settings_of(url: str) -> Settings:
    return parse(configuration(workers=[WORKER], store={"url": url}), {})


async def entered(stack: AsyncExitStack, behind: Backing) -> None:
    for opened in behind.opened:
        await stack.enter_async_context(opened)


async def test_in_memory_nothing_is_shared_and_nothing_is_ever_away() -> None:
    behind = backing(settings_of("memory://"), "p1", lambda seconds: None)
    assert isinstance(behind.limits, MemoryStore)
    assert (behind.registry, behind.bulletin, list(behind.opened)) == (None, None, [])
    assert not behind.is_degraded()
    async with behind.news(lambda text: None, lambda: None):
        pass


async def test_with_redis_limits_are_shared_and_news_are_heard(redis_url: str) -> None:
    seconds: list[float] = []
    behind = backing(settings_of(redis_url), "p1", seconds.append)
    assert isinstance(behind.limits, FallbackLimits)
    async with asyncio.timeout(10), AsyncExitStack() as stack:
        await entered(stack, behind)
        verdict = await behind.limits.take("r1", Tenant("acme", requests_per_minute=60), 5)
        assert verdict.quotas.requests is not None
        assert verdict.quotas.requests.remaining == 59
        assert seconds
        assert not behind.is_degraded()
        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ready = asyncio.Event()
        await stack.enter_async_context(behind.news(heard.set_result, ready.set))
        await ready.wait()
        assert behind.bulletin is not None
        await behind.bulletin.publish("key:acme-1")
        assert await heard == "key:acme-1"


async def test_while_redis_is_away_that_is_told() -> None:
    behind = backing(settings_of("redis://127.0.0.1:9/0"), "p1", lambda seconds: None)
    async with asyncio.timeout(10), AsyncExitStack() as stack:
        await entered(stack, behind)
        assert behind.is_degraded()

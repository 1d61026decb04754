"""How do processes and replicas hear of changes? By Redis' publish and subscribe, on one channel.

News are "key:<id>", "tenant:<id>" and "workers". What is published while a process is not connected never
reaches it: it is told that there was a gap, and looks for itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from redis import RedisError
from redis.asyncio import Redis

from gateway.stores.redis.failures import translated

log = logging.getLogger(__name__)

QUIET_S = 0.9  # without a word from Redis it is asked for one; as long again without an answer: it is lost
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


def channel(prefix: str) -> str:
    return f"{prefix}:news"


class _NoAnswer(RedisError):
    """The connection stands, and nothing comes from it."""


class Bulletin:
    """`client` has timeouts; its `decode_responses` is on. Whoever made it closes it."""

    def __init__(self, client: Redis, prefix: str = "gateway") -> None:
        self._client = client
        self._channel = channel(prefix)

    async def publish(self, text: str) -> None:
        """Raises StoreUnavailable."""
        with translated():
            await self._client.publish(self._channel, text)

    @contextlib.asynccontextmanager
    async def listening(
        self, on_news: Callable[[str], None], on_gap: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Listen for as long as the context lasts, with or without Redis.

        on_gap: is called once it listens, the first time and each time after the connection was lost: what
        was published before may have been missed, what is published from then on is not.
        """
        ear = _Ear(self._client, self._channel, on_news, on_gap)
        ear.begin()
        try:
            yield
        finally:
            await ear.end()


class _Ear:
    """One listener: a task that connects again for ever."""

    def __init__(
        self, client: Redis, channel_name: str, on_news: Callable[[str], None], on_gap: Callable[[], None]
    ) -> None:
        self._client = client
        self._channel = channel_name
        self._on_news = on_news
        self._on_gap = on_gap
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._is_lost = False
        self._pause_s = FIRST_PAUSE_S

    def begin(self) -> None:
        self._task = asyncio.create_task(self._listen(), name="bulletin")
        self._task.add_done_callback(self._begin_anew)

    async def end(self) -> None:
        task, self._task = self._task, None
        if self._again:
            self._again.cancel()
        while task and not task.done():
            # More than once: asked at the moment a connection is lost, redis-py swallows it.
            task.cancel()
            await asyncio.wait([task], timeout=FIRST_PAUSE_S)

    def _begin_anew(self, ended: asyncio.Task[None]) -> None:
        """No bug of whoever is told may leave this process deaf: it would serve revoked keys."""
        if self._task is ended and not ended.cancelled():
            log.error("news could not be taken in; listening begins anew", exc_info=ended.exception())
            self._again = asyncio.get_running_loop().call_later(LONGEST_PAUSE_S, self.begin)

    async def _listen(self) -> None:
        while True:
            try:
                await self._until_lost()
            except RedisError as error:
                self._lost(error)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _until_lost(self) -> None:
        async with self._client.pubsub() as subscription:
            await subscription.subscribe(self._channel)
            is_asked = False
            while True:
                message = await subscription.get_message(timeout=QUIET_S)
                if message is None and is_asked:
                    raise _NoAnswer(f"no answer within {QUIET_S} s")
                is_asked = message is None
                if message is None:
                    await subscription.ping()
                elif message["type"] == "message":
                    self._on_news(message["data"])
                elif message["type"] == "subscribe":  # also after redis-py has connected again by itself
                    self._found()

    def _lost(self, error: RedisError) -> None:
        if not self._is_lost:
            log.warning("no news from Redis (%s: %s); trying on", type(error).__name__, error)
        self._is_lost = True

    def _found(self) -> None:
        if self._is_lost:
            log.warning("news from Redis again")
        self._is_lost = False
        self._pause_s = FIRST_PAUSE_S
        self._on_gap()

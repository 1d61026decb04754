"""What do the other processes and replicas have under way? Each tells all the others, by a beat of its own.

Not along with the steps of limits: tenants without limits take none, and where there are thousands a second
each would carry what is wanted 20 times a second.
"""

import asyncio
import logging
from collections.abc import Mapping
from importlib.resources import files
from typing import Protocol

import msgspec

from gateway.stores.redis.link import Link
from gateway.stores.redis.target import Target

log = logging.getLogger(__name__)

BEAT_S = 0.05
MANY = 8  # others, beyond which it beats less often: all together, they hear the square of their number
QUIET_BEAT_S = 1.0  # while nothing is under way here, nor changes elsewhere
KEPT_S = 3.0  # a process that has not told anything for so long is taken for dead
LAST_CALL_S = 0.5  # at the end, to be taken off at once instead

_read = msgspec.msgpack.Decoder(tuple[float, dict[str, bytes]]).decode


class Peer(Protocol):
    """This process, as one of several."""

    def report(self) -> bytes:
        """What the others are to know of it now; not empty."""
        ...

    def is_idle(self) -> bool:
        """Whether the others lose nothing by hearing of it seldom."""
        ...

    def learn(self, reports: Mapping[str, bytes], now_s: float) -> None:
        """The latest report of each other process, by name, and the time of Redis, in seconds since 1970."""
        ...

    def lose(self) -> None:
        """Nothing more is heard of the others until `learn` is called again."""
        ...


class RedisPeers:
    """`async with`: tells and hears for as long as the context lasts, with or without Redis.

    process: the name of this process among all, of letters, digits, dots, dashes and underscores. timeout_s:
    for a call; where none is answered in that time, the peer is told at once and Redis is tried again in the
    background. script: instead of peers.lua.
    """

    def __init__(
        self, target: Target, peer: Peer, *, prefix: str, process: str, timeout_s: float, script: str = ""
    ) -> None:
        self._peer = peer
        self._keys = (f"{prefix}:peers",)
        self._head = f"{process} {round(KEPT_S * 1e6)} ".encode()
        script = script or (files(__package__) / "lua" / "peers.lua").read_text(encoding="utf-8")
        self._link = Link(target, script, timeout_s, f"{prefix}-{process}-peers", self._telling)
        self._link.on_up = self._came_up
        self._link.on_down = self._went_down
        self._heard: dict[str, bytes] = {}
        self._due: asyncio.TimerHandle | None = None
        self._told_at_s = 0.0
        self._is_quiet = self._is_away = self._is_last_word = False
        self._left: asyncio.Future[None] | None = None

    async def __aenter__(self) -> "RedisPeers":
        self._loop = asyncio.get_running_loop()
        await self._link.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = self._loop.create_future()
        try:
            if self._link.is_up:
                async with asyncio.timeout(LAST_CALL_S):
                    self._tell()  # or after the call that is under way
                    await self._left
        except TimeoutError:
            log.warning("Redis did not take the end of this process in time; others count it a while longer")
        finally:
            self._cancel()
            await self._link.__aexit__()

    def notice(self) -> None:
        """Something came to be under way here. To be called at each request: it costs next to nothing."""
        if self._is_quiet:
            self._is_quiet = False
            self._tell_in(max(0.0, self._told_at_s + BEAT_S - self._loop.time()))

    def _telling(self) -> tuple[tuple[str], bytes]:
        self._told_at_s = self._loop.time()
        if self._left is not None:
            self._is_last_word = True
            return self._keys, self._head
        return self._keys, self._head + self._peer.report()

    def _tell_in(self, pause_s: float) -> None:
        self._cancel()
        self._due = self._loop.call_later(pause_s, self._tell)

    def _tell(self) -> None:
        self._cancel()
        if self._link.is_up and not self._link.is_busy:
            self._link.call(*self._telling(), self._answered)

    def _answered(self, raw: bytes | None) -> None:
        if raw is None:
            return  # the link is down: that was told before, and it comes up by itself
        if self._left is None:
            self._hear(raw)
        elif not self._is_last_word:
            self._tell()
        elif not self._left.done():
            self._left.set_result(None)

    def _hear(self, raw: bytes) -> None:
        now_us, reports = _read(raw)
        is_news = reports != self._heard
        self._heard = reports
        self._peer.learn(reports, now_us / 1e6)
        self._is_quiet = self._peer.is_idle() and not is_news
        self._tell_in(QUIET_BEAT_S if self._is_quiet else BEAT_S * max(1.0, len(reports) / MANY))

    def _came_up(self, raw: bytes) -> None:
        if self._is_away:
            self._is_away = False
            log.warning("Redis tells again what other processes have under way")
        self._answered(raw)

    def _went_down(self, reason: str) -> None:
        self._cancel()
        log.warning("what other processes have under way is not known (Redis: %s); trying on", reason)
        self._is_away = True
        self._peer.lose()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

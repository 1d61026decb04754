"""How does a process end without harm to those it serves?

Told to stop, it says that it is not ready, serves what comes until balancers have heard of that, refuses what
comes then, and lets what is under way end. Where a successor takes its place, it refuses nobody.
"""

import asyncio
import contextlib
import logging
from typing import Protocol

from gateway import settings
from gateway.accepting import Place
from gateway.callers import LAST_WORDS_S, Callers
from gateway.errors import Draining
from gateway.underway import UnderWay

log = logging.getLogger(__name__)

IDLE_S = 2.0  # who has asked nothing for so long is not likely to ask at this very moment


class Queue(Protocol):
    """Where requests wait for their turn."""

    def drain(self) -> None:
        """Refuse whoever comes from now on."""
        ...


class Ending:
    """Of one process. place: among siblings, if it has any."""

    def __init__(
        self, rules: settings.Server, queue: Queue, under_way: UnderWay, callers: Callers, place: Place | None
    ) -> None:
        self.has_begun = False  # nobody should send anything new
        self._rules = rules
        self._queue = queue
        self._under_way = under_way
        self._callers = callers
        self._place = place
        self._until = 0.0  # the loop's time; known once it has begun

    async def settle(self, enough: asyncio.Event) -> None:
        """Not ready from now on, but serving: for settle_s, or until `enough`. Each answer is the last of its
        connection, so that pools move on."""
        self._begin()
        left_s = min(self._rules.settle_s, self._rules.drain_s)
        log.info("not ready any more; what comes in the next %g s is served", left_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await enough.wait()

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take nothing new. What is under way may end until drain_s after the beginning, or `hurry`; then it
        is sent away."""
        self._begin()
        self._queue.drain()
        log.info("draining: %d requests under way", len(self._under_way))
        waiting = [asyncio.create_task(self._under_way.empty()), asyncio.create_task(hurry.wait())]
        parting = asyncio.create_task(self._callers.go(idle_s=0.0))
        left_s = max(0.0, self._until - asyncio.get_running_loop().time())
        await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (*waiting, parting):
            task.cancel()
        await self._send_away()

    async def retire(self) -> None:
        """Serve those who are connected until they have gone, for drain_s at most: a successor takes whoever
        comes."""
        log.info("a successor takes what comes: %d requests under way", len(self._under_way))
        self._callers.leave()
        self._callers.part()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rules.drain_s):
                await self._callers.go(IDLE_S)
        await self._send_away()

    def _begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._until = asyncio.get_running_loop().time() + self._rules.drain_s
            self._callers.part()
            if self._place is not None:
                self._place.leave()

    async def _send_away(self) -> None:
        farewell = Draining("This gateway shut down before the answer was complete.", retry_after_s=1)
        self._under_way.send_away(farewell)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._under_way.empty()

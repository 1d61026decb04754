"""Which workers are off duty, in every process and replica alike?"""

import asyncio
import logging
from typing import Protocol

from gateway.errors import NotFound, StoreUnavailable
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member

log = logging.getLogger(__name__)

CANCEL_AGAIN_S = 0.1
RETRY_S = 1.0  # between two looks while the switch cannot be read


class WorkerSwitch(Protocol):
    """Where it is kept which workers are to drain. Each method may raise StoreUnavailable."""

    async def drain(self, worker_id: str) -> None: ...

    async def resume(self, worker_id: str) -> None: ...

    async def draining(self) -> frozenset[str]: ...


class LocalSwitch:
    """For one process and no other, for as long as that lives."""

    def __init__(self) -> None:
        self._draining: frozenset[str] = frozenset()

    async def drain(self, worker_id: str) -> None:
        self._draining |= {worker_id}

    async def resume(self, worker_id: str) -> None:
        self._draining -= {worker_id}

    async def draining(self) -> frozenset[str]:
        return self._draining


class Roster:
    """Keeps a fleet at what the switch says. As an async context manager it also follows others' changes.

    `notice()` is to be called when something may have changed there.
    """

    def __init__(self, fleet: Fleet, switch: WorkerSwitch) -> None:
        self._fleet = fleet
        self._switch = switch
        self._news = asyncio.Event()
        self._one_look = asyncio.Lock()  # an answer that was overtaken by a later one would undo it

    async def drain(self, worker_id: str) -> Member:
        """Take a worker off duty. Raises NotFound, StoreUnavailable."""
        member = self._member(worker_id)
        await self._switch.drain(worker_id)
        await self.look()
        return member

    async def resume(self, worker_id: str) -> Member:
        """Put it back on duty. Raises NotFound, StoreUnavailable."""
        member = self._member(worker_id)
        await self._switch.resume(worker_id)
        await self.look()
        return member

    async def look(self) -> None:
        """Bring the fleet to what the switch says. Raises StoreUnavailable; then all stays as it is."""
        async with self._one_look:
            self._fleet.drain(await self._switch.draining())

    def notice(self) -> None:
        """Look soon; again and again while the switch cannot be read."""
        self._news.set()

    async def __aenter__(self) -> "Roster":
        self.notice()
        self._following = asyncio.create_task(self._follow(), name="roster")
        return self

    async def __aexit__(self, *_: object) -> None:
        while not self._following.done():
            # Again and again: redis-py can lose a cancellation that arrives as a connection breaks.
            self._following.cancel()
            await asyncio.wait([self._following], timeout=CANCEL_AGAIN_S)

    async def _follow(self) -> None:
        known = True
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.look()
            except StoreUnavailable as error:
                if known:
                    log.warning("which workers drain cannot be read, so it stays as it is: %s", error.detail)
                known = False
                self.notice()
                await asyncio.sleep(RETRY_S)
            else:
                known = True

    def _member(self, worker_id: str) -> Member:
        member = self._fleet.members.get(worker_id)
        if member is None:
            raise NotFound(
                "There is no worker with this id. GET /admin/workers lists them.", code="worker_not_found"
            )
        return member

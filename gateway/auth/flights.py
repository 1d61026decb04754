"""Who asks for many? Whoever wants to know the same at the same time shares one look."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from gateway.errors import GatewayError

log = logging.getLogger(__name__)

AGAIN_S = 0.1  # between two attempts to end a look

ResultT = TypeVar("ResultT")


class Flights(Generic[ResultT]):
    """Looks under way, each a task of its own, so that no one who leaves ends it for the others.

    look: asks; what it returns or raises goes to all who share it.
    """

    def __init__(self, look: Callable[[bytes], Coroutine[Any, Any, ResultT]]) -> None:
        self._look = look
        self._by_digest: dict[bytes, asyncio.Task[ResultT]] = {}
        self._tasks: set[asyncio.Task[ResultT]] = set()

    async def share(self, digest: bytes) -> ResultT:
        """Wait for the look for this, which is begun if there is none."""
        return await asyncio.shield(self._begun(digest))

    def begin(self, digest: bytes) -> None:
        """The same for those who come later: begin it, if there is none, and do not wait."""
        self._begun(digest)

    def is_current(self, digest: bytes) -> bool:
        """Asked by a look of itself: does its answer still count for those who come?"""
        return self._by_digest.get(digest) is asyncio.current_task()

    def outdate(self) -> None:
        """Something has changed: looks under way answer those who wait already, and nobody who comes."""
        self._by_digest.clear()

    async def aclose(self) -> None:
        """End them all."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            # Time and again: a cancellation that comes as a connection breaks can be lost in a client.
            await asyncio.wait(self._tasks, timeout=AGAIN_S)

    def _begun(self, digest: bytes) -> asyncio.Task[ResultT]:
        task = self._by_digest.get(digest)
        if task is None:
            task = self._by_digest[digest] = asyncio.create_task(self._look(digest), name="look for a key")
            self._tasks.add(task)
            task.add_done_callback(lambda ended: self._landed(digest, ended))
        return task

    def _landed(self, digest: bytes, task: asyncio.Task[ResultT]) -> None:
        self._tasks.discard(task)
        if self._by_digest.get(digest) is task:
            del self._by_digest[digest]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, GatewayError):
            log.error("the look for a key failed by a bug of the gateway", exc_info=error)

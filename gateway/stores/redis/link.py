"""Is Redis there? A connection that is kept open, calls on it that never take long, and a breaker.

A call that is not answered in time, or whose connection is lost, takes the link down for all at once: until
Redis answers again nobody waits for it. It is tried again at once, then after growing pauses.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis import RedisError

from gateway.stores.redis.target import Target
from gateway.stores.redis.wire import Wire, WireError

log = logging.getLogger(__name__)

GRACE_S = 0.01
"""After the time is up: had this process itself been held up, the answer would be in the socket by now."""
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5)
"""Before each further attempt to reach Redis; the last one for all that follow."""


class Link:
    """`async with`: connects, or is down and tries on. One call at a time.

    probe: the keys and the argument of a call that writes; only a Redis that has answered it is up.
    on_up: is called with that answer when Redis can be reached (again). on_down: when it cannot any more,
    before the call that was under way is told. timeout_s: for one call, and for one attempt to connect.
    """

    def __init__(
        self,
        target: Target,
        script: str,
        timeout_s: float,
        name: str,
        probe: Callable[[], tuple[Sequence[str], bytes]],
    ) -> None:
        self.on_up: Callable[[bytes], None] = lambda answer: None
        self.on_down: Callable[[str], None] = lambda reason: None
        self._target = target
        self._script = script.encode()
        self._sha = hashlib.sha1(self._script, usedforsecurity=False).hexdigest()
        self._timeout_s = timeout_s
        self._name = name
        self._probe = probe
        self._wire: Wire | None = None
        self._on_answer: Callable[[Any], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._first_attempt = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    @property
    def is_busy(self) -> bool:
        return self._on_answer is not None

    async def __aenter__(self) -> "Link":
        self._connecting = asyncio.create_task(self._connect(), name="connecting to Redis")
        await self._first_attempt.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.close()
            await self._wire.wait_closed()
            self._wire = None
        await self._target.aclose()

    def call(self, keys: Sequence[str], argument: bytes, on_answer: Callable[[bytes | None], None]) -> None:
        """Run the script. on_answer gets what it returned, or None if that will never be known."""
        wire = self._wire
        assert wire is not None, "it is down"
        self._on_answer = on_answer
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._time_is_up, False)

        def answered(answer: object) -> None:
            if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
                wire.send(("EVAL", self._script, len(keys), *keys, argument), self._answered)
            else:
                self._answered(answer)

        wire.send(("EVALSHA", self._sha, len(keys), *keys, argument), answered)

    def _answered(self, answer: object) -> None:
        if not isinstance(answer, bytes):  # a replica after a failover, a full memory, a missing permission
            self._lose(str(answer))
            return
        self._end_call(answer)

    def _end_call(self, answer: bytes | None) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if on_answer is not None:
            on_answer(answer)

    def _time_is_up(self, waited_longer: bool) -> None:
        if not waited_longer:
            self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._time_is_up, True)
            return
        self._lose(f"no answer within {self._timeout_s * 1000:.0f} ms")

    def _lose(self, reason: str) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        wire.close()
        self.on_down(reason)
        self._end_call(None)
        self._connecting = asyncio.create_task(self._connect(), name="connecting to Redis")

    async def _connect(self) -> None:
        attempt = 0
        while self._wire is None:
            await asyncio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            try:
                async with asyncio.timeout(self._timeout_s):
                    wire, answer = await self._open()
            except (OSError, WireError, RedisError) as error:  # TimeoutError is an OSError
                if attempt == 0 and not self._first_attempt.is_set():
                    self.on_down(_reason(error, self._timeout_s))
                attempt += 1
            else:
                wire.on_lost = self._lose
                self._wire = wire
                self.on_up(answer)
            finally:
                self._first_attempt.set()

    async def _open(self) -> tuple[Wire, bytes]:
        wire = await Wire.open(self._target, self._name)
        try:
            keys, argument = self._probe()
            answer = await wire.ask("EVAL", self._script, len(keys), *keys, argument)
            if not isinstance(answer, bytes):
                raise WireError(str(answer))
        except BaseException:
            wire.close()
            raise
        return wire, answer


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s * 1000:.0f} ms"
    return str(error) or type(error).__name__

"""Group commit: while one call to Redis is under way, all that is asked meanwhile forms the next one.

So an idle gateway pays one round trip for an admission, and a busy one shares each among many. What nobody
waits for (settlements) rides along, or goes by itself after a moment.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from gateway.errors import StoreUnavailable
from gateway.stores.redis.link import Link
from gateway.stores.redis.target import Target

log = logging.getLogger(__name__)

# The steps of limits.lua.
TAKE, SETTLE, FORCE, RENEW, LOOK, BEAT = 1, 2, 3, 4, 5, 6
LATE = -1
MOST_STEPS = 512  # of one call: what Redis does in a few milliseconds
MOST_WAITING = 100_000  # steps that wait for Redis to come back
SETTLE_WITHIN_S = 0.002  # if no admission comes along
LAST_CALL_S = 1.0  # at the end, for what is still to be settled

Answer = list[Any]


class Entry:
    """A tenant as the script is told of it. limits: those of a minute, of a day, and slots; 0: none."""

    __slots__ = ("keys", "limits")

    def __init__(self, keys: tuple[str, str], limits: Sequence[int]) -> None:
        self.keys = keys
        self.limits = limits


class Step:
    """One step of the script. `future`: somebody waits for the answer; `words` follow the tenant."""

    __slots__ = ("entry", "future", "kind", "words")

    def __init__(
        self,
        kind: int,
        entry: Entry | None,
        words: tuple[Any, ...],
        future: asyncio.Future[Answer] | None = None,
    ) -> None:
        self.kind = kind
        self.entry = entry
        self.words = words
        self.future = future


class Batches:
    """`async with`. on_up is called after each (re)connection, before anything else is sent.

    process: the name of this process among all. observe: is told how long each call took, in seconds.
    script: instead of limits.lua.
    """

    def __init__(
        self,
        target: Target,
        *,
        prefix: str,
        process: str,
        lease_ttl_s: float,
        timeout_s: float,
        observe: Callable[[float], None] = lambda seconds: None,
        script: str = "",
    ) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda reason: None
        self.processes = 1  # that live, as last counted
        self._prefix = prefix
        self._process = process
        self._lease_ttl_us = round(lease_ttl_s * 1e6)
        self._timeout_s = timeout_s
        self._observe = observe
        script = script or (files(__package__) / "lua" / "limits.lua").read_text(encoding="utf-8")
        self._link = Link(target, script, timeout_s, f"{prefix}-{process}", self._probe)
        self._link.on_up = self._came_up
        self._link.on_down = self._went_down
        self._waiting: deque[Step] = deque()
        self._asked = 0  # of those that wait: for how many somebody waits
        self._sent: list[Step] = []
        self._sent_at = 0.0
        self._redis_ahead_us = 0.0  # of our monotonic clock, at least
        self._due: asyncio.Handle | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode
        self._dropped = 0

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    async def __aenter__(self) -> "Batches":
        self._loop = asyncio.get_running_loop()
        await self._link.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.is_up:
            try:
                async with asyncio.timeout(LAST_CALL_S):
                    await self.ask(BEAT, None, (0,))  # the last in the line
            except (TimeoutError, StoreUnavailable):
                log.warning(
                    "Redis did not take the last settlements in time; those leases lapse by themselves"
                )
        if self._due is not None:
            self._due.cancel()
        await self._link.__aexit__()

    def ask(self, kind: int, entry: Entry | None, words: tuple[Any, ...]) -> asyncio.Future[Answer]:
        """A step whose answer is waited for. Raises StoreUnavailable, at once or from the future."""
        if not self._link.is_up:
            raise StoreUnavailable
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append(Step(kind, entry, words, future))
        self._asked += 1
        if self._asked == 1 and not self._link.is_busy:
            self._send_soon()
        return future

    def tell(self, kind: int, entry: Entry | None, words: tuple[Any, ...]) -> None:
        """A step whose answer nobody waits for. While Redis is away it is kept."""
        self._waiting.append(Step(kind, entry, words))
        if self._due is None and self._link.is_up and not self._link.is_busy:
            self._due = self._loop.call_later(SETTLE_WITHIN_S, self._send)
        elif len(self._waiting) > MOST_WAITING:
            self._drop()

    def _drop(self) -> None:
        self._waiting.popleft()
        if not self._dropped:
            log.warning("settlements wait for Redis beyond %d; the oldest are dropped", MOST_WAITING)
        self._dropped += 1

    def _send_soon(self) -> None:
        """At the end of this turn of the loop, with whatever else comes in it."""
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._due = None
        if self._link.is_busy or not self._link.is_up:
            return
        steps = self._next_steps()
        if steps:
            self._sent = steps
            self._sent_at = time.monotonic()
            keys, argument = self._packed(steps)
            self._link.call(keys, argument, self._answered)

    def _next_steps(self) -> list[Step]:
        steps: list[Step] = []
        waiting = self._waiting
        while waiting and len(steps) < MOST_STEPS:
            step = waiting.popleft()
            if step.future is not None:
                self._asked -= 1
                if step.future.done():  # whoever asked has left
                    continue
            steps.append(step)
        return steps

    def _packed(self, steps: list[Step]) -> tuple[list[str], bytes]:
        keys = [f"{self._prefix}:processes"]
        places: dict[Entry, int] = {}
        limits = []
        packed = []
        for step in steps:
            entry = step.entry
            if entry is None:
                packed.append((step.kind, *step.words))
                continue
            place = places.get(entry)
            if place is None:
                place = places[entry] = len(places) + 1
                keys += entry.keys
                limits.append(entry.limits)
            packed.append((step.kind, place, *step.words))
        # A call that Redis comes to only after we have given it up must grant nothing.
        deadline_us = int((time.monotonic() + self._timeout_s) * 1e6 + self._redis_ahead_us)
        return keys, self._encode((self._process, self._lease_ttl_us, deadline_us, limits, packed))

    def _probe(self) -> tuple[list[str], bytes]:
        return self._packed([Step(BEAT, None, (1,))])

    def _answered(self, raw: bytes | None) -> None:
        steps, self._sent = self._sent, []
        self._observe(time.monotonic() - self._sent_at)
        if raw is None:
            self._doubt(steps)
            return
        for step, answer in zip(steps, self._read(raw), strict=True):
            if step.kind == BEAT:
                self.processes = max(1, answer)
            if step.future is None:
                continue
            if step.future.done():
                if step.kind == TAKE and answer[0] == 0:
                    self._undo(step)
            elif step.kind == TAKE and answer[0] == LATE:  # its clock leapt; by now we know by how much
                self._waiting.appendleft(step)
                self._asked += 1
            else:
                step.future.set_result(answer)
        if self._asked:
            self._send_soon()
        elif self._waiting and self._due is None:
            self._due = self._loop.call_later(SETTLE_WITHIN_S, self._send)

    def _read(self, raw: bytes) -> list[Any]:
        redis_us, answers = self._decode(raw)
        self._redis_ahead_us = redis_us - time.monotonic() * 1e6
        return list(answers)

    def _undo(self, step: Step) -> None:
        """Give back in full what was granted to somebody who has left, or may have been; before all else."""
        lease, tokens = step.words
        self._waiting.appendleft(Step(SETTLE, step.entry, (lease, -1, -tokens)))

    def _doubt(self, steps: list[Step]) -> None:
        """Whether these were done will never be known. A settlement can be made twice; a charge cannot."""
        again = [step for step in steps if step.kind == SETTLE]
        self._waiting.extendleft(reversed(again))
        for step in steps:
            if step.kind == TAKE:
                self._undo(step)
            _fail(step)

    def _went_down(self, reason: str) -> None:
        waiting, self._waiting, self._asked = self._waiting, deque(), 0
        for step in waiting:
            if step.future is None:
                self._waiting.append(step)
            _fail(step)
        self.on_down(reason)

    def _came_up(self, raw: bytes) -> None:
        (self.processes,) = self._read(raw)
        self.on_up()
        self._send_soon()


def _fail(step: Step) -> None:
    if step.future is not None and not step.future.done():
        step.future.set_exception(StoreUnavailable())

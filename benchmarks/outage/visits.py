"""Who was at the worker, and when? Kept by the worker, asked by the scenarios."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A request came (+1) or ended (-1)."""

    at_s: float  # by time.monotonic
    tag: str
    by: int


class Visits:
    """Of one worker, by the requests' tags."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._changed = asyncio.Event()

    @contextmanager
    def visit(self, tag: str) -> Iterator[None]:
        """A request is here for as long as the block lasts."""
        self._add(Change(time.monotonic(), tag, 1))
        try:
            yield
        finally:
            self._add(Change(time.monotonic(), tag, -1))

    def _add(self, change: Change) -> None:
        self.changes.append(change)
        self._changed.set()

    def begun(self, tag: str) -> int:
        """How many have come so far."""
        return sum(change.tag == tag and change.by > 0 for change in self.changes)

    async def come(self, tag: str, count: int) -> None:
        """Wait until so many have come."""
        while self.begun(tag) < count:
            self._changed.clear()
            await self._changed.wait()

    def most(self) -> int:
        """Most requests at once, of all tags together."""
        return max((sum(here.values()) for _, here in self._states()), default=0)

    def most_beside(self, tag: str, other: str) -> int:
        """Most requests of a tag at once while one of the other tag was there."""
        return max((here[tag] for _, here in self._states() if here[other]), default=0)

    def reached_s(self, tag: str, count: int, since_s: float) -> float | None:
        """How long after `since_s` there were so many of a tag at once; None if there never were."""
        found = (at_s for at_s, here in self._states() if here[tag] >= count and at_s >= since_s)
        first_s = next(found, None)
        return None if first_s is None else first_s - since_s

    def _states(self) -> Iterator[tuple[float, Counter[str]]]:
        """Since when, and how many of each tag are there; the same counter each time."""
        here: Counter[str] = Counter()
        for change in self.changes:
            here[change.tag] += change.by
            yield change.at_s, here

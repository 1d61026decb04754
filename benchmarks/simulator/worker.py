"""When does a token leave a worker? The engine's virtual time, bound to that of an event loop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from benchmarks.simulator.asked import Asked, Refused
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.request import Event, Request
from benchmarks.simulator.series import Series

Listener = Callable[[Event], None]


class Clock(Protocol):
    """What is needed of an event loop."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class Worker:
    """One engine among those of a loop. speed: virtual seconds in a real one.

    Events come when the loop gets to them: a timer of uvloop ticks in milliseconds, and a busy loop is late.
    Neither delays the engine, whose steps follow each other in virtual time.
    """

    def __init__(
        self, loop: Clock, engine: Engine, series: Series, speed: float, max_queued: int | None
    ) -> None:
        self._loop = loop
        self._engine = engine
        self._series = series
        self._speed = speed
        self._max_queued = max_queued
        self._start_s = self._loop.time()
        self._listeners: dict[Request, tuple[Listener, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def metrics(self) -> bytes:
        return self._series.text()

    def submit(self, asked: Asked, listener: Listener) -> None:
        """The listener hears of each token, unless `abort` comes first. Raises Refused for too many."""
        if self._max_queued is not None and len(self._listeners) >= self._max_queued:
            raise Refused(503, "Service Unavailable", "Too many requests are queued; try again later.")
        now_s = self._now_s()
        self._engine.submit(asked.request, now_s)
        self._listeners[asked.request] = (listener, now_s)
        if self._timer is None:
            self._wait()

    def abort(self, request: Request) -> None:
        """Of one that may have ended already."""
        self._listeners.pop(request, None)
        self._engine.abort(request)

    def stop(self) -> None:
        """Nothing more is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_s(self) -> float:
        return (self._loop.time() - self._start_s) * self._speed

    def _wait(self) -> None:
        next_s = self._engine.next_s
        if next_s is None:
            self._timer = None
        else:
            self._timer = self._loop.call_at(self._start_s + next_s / self._speed, self._tell)

    def _tell(self) -> None:
        now_s = self._now_s()
        tokens, late_s = 0, 0.0
        for event in self._engine.advance(now_s):
            listener, sent_s = self._listeners[event.request]
            tokens += 1
            late_s = max(late_s, now_s - event.time_s)
            if event.tokens == 1:
                prompt_tokens = event.request.prompt_tokens
                self._series.first_token(prompt_tokens, event.cached_tokens, event.time_s - sent_s)
            if event.finished:
                del self._listeners[event.request]
            listener(event)
        if tokens:
            self._series.told(tokens, late_s)
        self._wait()

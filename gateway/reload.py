"""Has the configuration file changed? Then most of it comes into force, without a restart."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.configuration import ConfigurationError
from gateway.settings import Section, Settings

log = logging.getLogger(__name__)

# What comes into force while the gateway runs. All else needs a restart.
LIVE = frozenset(
    (
        "tenants", "keys", "models", "workers",
        "admission.max_queued", "admission.max_wait_s",
        "admission.tenant_queue_share", "admission.tenant_flight_share",
        "routing.policy", "routing.max_prefills", "routing.max_long_prefills",
    )
)  # fmt: skip
INTERVAL_S = 1.0  # between two looks at the file
SETTLE_S = 0.1  # before a changed file is read: it may be half written

_Stamp = tuple[int, int, int] | str  # a str is why there is none


class Watcher:
    """Looks at the file once a second. Use as an async context manager.

    running: what the gateway was started with. The first look reads the file in any case, so that no
        change since then is missed.
    load: reads the file, in a thread. Raises ConfigurationError.
    apply: puts into force what is LIVE of the settings, in the loop.
    """

    def __init__(
        self,
        path: Path,
        running: Settings,
        load: Callable[[], Settings],
        apply: Callable[[Settings], None],
        *,
        interval_s: float = INTERVAL_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._path = path
        self._load = load
        self._apply = apply
        self._running = running
        self._in_force = running
        self._interval_s = interval_s
        self._settle_s = settle_s
        self._told = asyncio.Event()
        self._seen: _Stamp | None = None  # at the last look
        self._read: _Stamp | None = None  # when it was read, or found missing
        self._is_refused = False  # as its content stood then

    async def __aenter__(self) -> "Watcher":
        self._is_open = True
        self._begin(pause_s=0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._task.cancel()
        await asyncio.wait([self._task])

    def look_now(self) -> None:
        """Read the file now, also if it looks unchanged. For a signal handler of the loop."""
        self._told.set()

    async def look(self, *, at_once: bool = False) -> bool:
        """Read the file if it has changed and is not being changed; with `at_once`, in any case.

        False: look again soon. It is for the task of the context manager, or instead of one.
        """
        stamp = await asyncio.to_thread(_stamp, self._path)  # a network's file system can hang in it
        was_seen, self._seen = self._seen, stamp
        if not at_once:
            if stamp == self._read:
                return True
            if stamp != was_seen:
                return False
        self._read = stamp  # taken before reading: what is written meanwhile will be a change
        if isinstance(stamp, str):
            self._is_refused = True
            log.error("%s cannot be read: %s. What it said before stays in force", self._path, stamp)
        else:
            await self._take()
        return True

    async def _take(self) -> None:
        try:
            settings = await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            self._is_refused = True
            log.error(
                "%s has problems, and what it said before stays in force: %s",
                self._path,
                "; ".join(error.problems),
            )
            return
        if self._is_refused:
            self._is_refused = False
            log.info("%s is in order again", self._path)
        waiting = [name for name in _differing(self._running, settings) if name not in LIVE]
        if waiting:
            log.warning("%s has changed, but these need a restart: %s", self._path, ", ".join(waiting))
        changed = [name for name in _differing(self._in_force, settings) if name in LIVE]
        if changed:
            self._apply(settings)
            self._in_force = settings
            log.info(
                "%s has changed; in force are its %s (%d workers, %d tenants, %d keys)",
                self._path, ", ".join(changed),
                len(settings.workers), len(settings.tenants), len(settings.keys),
            )  # fmt: skip

    def _begin(self, pause_s: float) -> None:
        self._task = asyncio.create_task(self._watch(pause_s), name="configuration file")
        self._task.add_done_callback(self._begin_anew)

    def _begin_anew(self, ended: asyncio.Task[None]) -> None:
        """The file must not go unwatched, whatever bug ended that."""
        if not ended.cancelled():
            log.error("watching %s failed by a bug", self._path, exc_info=ended.exception())
            if self._is_open:
                self._begin(self._interval_s)

    async def _watch(self, pause_s: float) -> None:
        while True:
            settled = await self.look(at_once=await self._told_within(pause_s))
            pause_s = self._interval_s if settled else self._settle_s

    async def _told_within(self, pause_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._told.wait()
        was_told = self._told.is_set()
        self._told.clear()
        return was_told


def _stamp(path: Path) -> _Stamp:
    """Differs once the file has changed, also where a symbolic link to it was exchanged."""
    try:
        status = path.stat()
    except OSError as error:
        return error.strerror or type(error).__name__
    return status.st_mtime_ns, status.st_size, status.st_ino


def _differing(running: Settings, settings: Settings) -> Iterator[str]:
    """The names of settings that are not as they were."""
    for name, now in settings:
        before = getattr(running, name)
        if now == before:
            continue
        if isinstance(now, Section):
            yield from (f"{name}.{field}" for field, value in now if value != getattr(before, field))
        else:
            yield name

"""Keep checks going of every worker of the fleet: whoever comes is watched, whoever goes is no longer."""

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx

from gateway import settings
from gateway.fleet.catalogue import Catalogue
from gateway.fleet.checks import Checks
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a worker is and what opens it.

    on_gone: is called when it is down and refuses connections.
    """

    url: str
    headers: Mapping[str, str]
    on_gone: Callable[[], None] = field(default=lambda: None, compare=False)


class Probes:
    """One task a worker, so that a slow one delays no other. Use as an async context manager."""

    def __init__(
        self,
        rules: settings.Fleet,
        fleet: Fleet,
        catalogue: Catalogue,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        """tls: whom to trust; is called for https workers."""
        self._rules = rules
        self._fleet = fleet
        self._catalogue = catalogue
        self._tls = tls
        self._is_open = False
        self._origins: dict[Member, Origin] = {}
        self._tasks: dict[Member, asyncio.Task[None]] = {}
        self._checks: dict[Member, Checks] = {}
        self._unseen: set[Member] = set()
        self._all_seen = asyncio.Event()
        fleet.on_trouble = self.hurry

    def watch(self, member: Member, origin: Origin) -> None:
        """Check a worker from now on, or from when this is entered."""
        self._origins[member] = origin
        self._unseen.add(member)
        self._begin(member)

    def unwatch(self, member: Member) -> None:
        """Check it no longer."""
        del self._origins[member]
        self._seen(member)
        if task := self._tasks.pop(member, None):
            task.cancel()

    def hurry(self, member: Member) -> None:
        """Check a worker soon."""
        if checks := self._checks.get(member):
            checks.hurry()

    async def __aenter__(self) -> "Probes":
        self._is_open = True
        for member in self._origins:
            self._begin(member)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def first_round(self) -> None:
        """Wait until each worker has been looked at once."""
        if self._unseen:
            await self._all_seen.wait()

    def _begin(self, member: Member) -> None:
        if self._is_open and member in self._origins:
            task = asyncio.create_task(self._run(member, self._origins[member]), name=f"probe {member.id}")
            self._tasks[member] = task
            task.add_done_callback(functools.partial(self._begin_anew, member))

    def _begin_anew(self, member: Member, ended: asyncio.Task[None]) -> None:
        """No worker may be left unwatched, whatever bug ended that."""
        if not ended.cancelled() and self._is_open:
            log.error(
                "the health checks of worker %s failed; they begin anew",
                member.id,
                exc_info=ended.exception(),
            )
            asyncio.get_running_loop().call_later(self._rules.probe_interval_s, self._begin, member)

    async def _run(self, member: Member, origin: Origin) -> None:
        async with self._client(origin) as client:
            seen = functools.partial(self._seen, member)
            checks = Checks(member, client, self._rules, self._fleet, self._catalogue, seen, origin.on_gone)
            self._checks[member] = checks
            try:
                await checks.run()
            finally:
                del self._checks[member]

    def _client(self, origin: Origin) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=origin.url,
            headers=dict(origin.headers),
            timeout=None,  # the checks keep the time, over all of an answer
            limits=httpx.Limits(max_keepalive_connections=0),  # a kept connection would not follow its name
            verify=self._tls() if origin.url.startswith("https:") else False,
            trust_env=False,
        )

    def _seen(self, member: Member) -> None:
        self._unseen.discard(member)
        if not self._unseen:
            self._all_seen.set()

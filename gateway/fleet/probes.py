"""Ask each worker, off the request path, whether it is well and what it serves."""

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import msgspec

from gateway import settings
from gateway.fleet.backlog import Backlog
from gateway.fleet.catalogue import Card, Catalogue, lengths
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member

log = logging.getLogger(__name__)

LOOK_EVERY = 15  # health checks between two looks at what a worker serves, and at what waits in it


class _Cards(msgspec.Struct):
    data: list[Card]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a worker is and what opens it."""

    url: str
    headers: Mapping[str, str]


class Probes:
    """One task a worker, so that a slow one delays no other. Use as an async context manager."""

    def __init__(
        self,
        rules: settings.Fleet,
        fleet: Fleet,
        catalogue: Catalogue,
        origins: Mapping[str, Origin],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._rules = rules
        self._fleet = fleet
        self._catalogue = catalogue
        self._origins = origins
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] | None = set()  # None once this has ended
        self._unseen = set(fleet.members)
        self._all_seen = asyncio.Event()

    async def __aenter__(self) -> "Probes":
        for member in self._fleet.members.values():
            self._begin(member)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, None
        for task in tasks or ():
            task.cancel()
        for task in tasks or ():
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def first_round(self) -> None:
        """Wait until each worker has been looked at once."""
        await self._all_seen.wait()

    def _begin(self, member: Member) -> None:
        if self._tasks is None:
            return
        task = asyncio.create_task(self._watch(member), name=f"probe {member.id}")
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._begin_anew, member))

    def _begin_anew(self, member: Member, ended: asyncio.Task[None]) -> None:
        """No worker may be left unwatched, whatever bug ended its checks."""
        if self._tasks is not None:
            self._tasks.discard(ended)
            log.error(
                "the health checks of worker %s failed; they begin anew",
                member.id,
                exc_info=ended.exception(),
            )
            asyncio.get_running_loop().call_later(self._rules.probe_interval_s, self._begin, member)

    async def _watch(self, member: Member) -> None:
        origin = self._origins[member.id]
        client = httpx.AsyncClient(
            base_url=origin.url,
            headers=dict(origin.headers),
            timeout=self._rules.probe_timeout_s,
            verify=self._tls or False,  # workers without TLS need no certificates
            trust_env=False,
        )
        async with client:
            count, backlog = 0, Backlog(member.id)
            while True:
                was_up = member.up
                await self._check(client, member)
                if member.up and (not was_up or count % LOOK_EVERY == 0):
                    await self._learn_models(client, member)
                self._seen(member)
                count += 1
                if member.up and count % LOOK_EVERY == 0:
                    await self._look_into(client, member, backlog)
                await asyncio.sleep(self._rules.probe_interval_s)

    def _seen(self, member: Member) -> None:
        self._unseen.discard(member.id)
        if not self._unseen:
            self._all_seen.set()

    async def _check(self, client: httpx.AsyncClient, member: Member) -> None:
        try:
            response = await client.get("/health")
        except httpx.HTTPError as error:
            self._fleet.ill(member, f"health check: {type(error).__name__}: {error}")
            return
        if response.status_code == 200:
            self._fleet.healthy(member)
        else:
            self._fleet.ill(member, f"health check: status {response.status_code}")

    async def _learn_models(self, client: httpx.AsyncClient, member: Member) -> None:
        try:
            response = await client.get("/v1/models")
            cards = msgspec.json.decode(response.content, type=_Cards).data
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            log.warning("worker %s did not tell its models: %s", member.id, error)
            return
        names = self._catalogue.report(member.id, cards)
        self._fleet.contexts.note(member.id, lengths(cards))
        if member.configured not in names:
            log.warning(
                "worker %s serves %s, not %s: give vllm serve that --served-model-name, "
                "or correct its model in [[workers]]",
                member.id, ", ".join(card.id for card in cards), member.configured,
            )  # fmt: skip
        member.models = names | {member.configured}

    async def _look_into(self, client: httpx.AsyncClient, member: Member, backlog: Backlog) -> None:
        try:
            response = await client.get("/metrics")
        except httpx.HTTPError as error:
            log.debug("worker %s did not tell what waits in it: %s", member.id, error)
            return
        backlog.look(response.text)

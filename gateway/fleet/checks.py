"""What is one worker asked, off the request path? Is it well, is it awake, what does it serve, what waits?"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Never

import httpx
import msgspec

from gateway import settings
from gateway.fleet.backlog import Backlog
from gateway.fleet.catalogue import Card, Catalogue, lengths
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member

log = logging.getLogger(__name__)

LOOK_EVERY = 15  # health checks between two looks at what a worker serves, and at what waits in it
REST = 0.1  # of the interval passes before the next check, however urgent

# A worker that sleeps or is paused says that it is well, and answers nothing. Only one in development mode
# (VLLM_SERVER_DEV_MODE) can be put to sleep over HTTP, and only there these paths exist.
UNAVAILABLE = {"/is_sleeping": "is_sleeping", "/is_paused": "is_paused"}


class _Cards(msgspec.Struct):
    data: list[Card]


class Checks:
    """Of one worker. `client` is for nothing else, and knows the worker's URL.

    on_seen: is called after each check. on_gone: when the worker is down and refuses connections.
    """

    def __init__(
        self,
        member: Member,
        client: httpx.AsyncClient,
        rules: settings.Fleet,
        fleet: Fleet,
        catalogue: Catalogue,
        on_seen: Callable[[], None] = lambda: None,
        on_gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._member = member
        self._client = client
        self._rules = rules
        self._fleet = fleet
        self._catalogue = catalogue
        self._on_seen = on_seen
        self._on_gone = on_gone
        self._backlog = Backlog(member.id)
        self._paths: list[str] = []  # of those that tell whether it is available, which it has
        self._urgent = asyncio.Event()

    def hurry(self) -> None:
        """Check soon: something is wrong with it."""
        self._urgent.set()

    async def run(self) -> Never:
        """Check again and again. A slow answer to anything else delays no health check."""
        member, count = self._member, 0
        look: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                was_up = member.up
                self._urgent.clear()
                await self._check()
                if member.up and not was_up:
                    await self._learn_models()
                elif member.up and count % LOOK_EVERY == 0 and (look is None or look.done()):
                    look = group.create_task(self._look())
                self._on_seen()
                count += 1
                await self._pause()

    async def _pause(self) -> None:
        interval_s = self._rules.probe_interval_s
        await asyncio.sleep(interval_s * REST)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s * (1 - REST)):
                await self._urgent.wait()

    async def _check(self) -> None:
        member, fleet = self._member, self._fleet
        answered = member.answered
        try:
            async with asyncio.timeout(self._rules.probe_timeout_s):
                reason = await self._ailment()
        except TimeoutError:
            if member.answered == answered:  # else it is busy, and alive
                fleet.ill(member, f"health check: no answer within {self._rules.probe_timeout_s:g} s")
        except httpx.HTTPError as error:
            fleet.ill(member, f"health check: {type(error).__name__}: {error}")
            if isinstance(error, httpx.ConnectError) and not member.up:
                self._on_gone()
        else:
            if reason:
                fleet.ill(member, f"health check: {reason}")
            else:
                fleet.healthy(member)

    async def _ailment(self) -> str:
        """What is wrong with it; "": nothing."""
        response = await self._client.get("/health")
        if response.status_code != 200:
            return f"status {response.status_code}"
        if not self._member.up:
            self._paths = list(UNAVAILABLE)  # it may have been started anew, with other paths
        for path in tuple(self._paths):
            response = await self._client.get(path)
            if response.status_code == 404:
                self._paths.remove(path)
            elif _says(response, UNAVAILABLE[path]):
                return f"it answers {path} with true: resume it, or wake it up"
        return ""

    async def _look(self) -> None:
        await self._learn_models()
        response = await self._get("/metrics")
        if response is not None:
            self._backlog.look(response.text)

    async def _learn_models(self) -> None:
        member = self._member
        response = await self._get("/v1/models")
        if response is None:
            return
        try:
            cards = msgspec.json.decode(response.content, type=_Cards).data
        except msgspec.MsgspecError as error:
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

    async def _get(self, path: str) -> httpx.Response | None:
        try:
            async with asyncio.timeout(self._rules.probe_timeout_s):
                return await self._client.get(path)
        except (httpx.HTTPError, TimeoutError) as error:
            log.warning("worker %s did not answer %s: %r", self._member.id, path, error)
            return None


def _says(response: httpx.Response, name: str) -> bool:
    try:
        told = msgspec.json.decode(response.content, type=dict[str, object])
    except msgspec.MsgspecError:
        return False
    return told.get(name) is True

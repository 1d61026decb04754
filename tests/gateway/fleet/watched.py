"""A fleet of one worker whose checks a test follows, and a worker whose health it changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from gateway import settings
from gateway.fleet import Catalogue, Fleet, Member, Origin, Probes
from gateway.model import Model
from tests.fakes import MODEL, Received, Reply, answer_probe

OFTEN: dict[str, Any] = {"probe_interval_s": 0.001, "probe_timeout_s": 5, "failures": 2, "ejection_s": 0.001}


class Watched:
    """A fleet of one worker, and a way to wait for what its probes find."""

    def __init__(self, **rules: Any) -> None:
        self.rules = settings.Fleet(**(OFTEN | rules))
        self.catalogue = Catalogue({Model(MODEL): []})
        self.member = Member("w0", MODEL, 4)
        self.fleet = Fleet(self.rules, [self.member])
        self.refused = asyncio.Event()  # it is down and refuses connections

    @asynccontextmanager
    async def by(self, url: str, headers: dict[str, str] | None = None) -> AsyncIterator["Watched"]:
        probes = Probes(self.rules, self.fleet, self.catalogue)
        probes.watch(self.member, Origin(url, headers or {}, self.refused.set))
        async with probes:
            yield self

    async def until(self, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_met():  # noqa: ASYNC110 - probes tell nobody when they are done
                await asyncio.sleep(0.001)

    async def until_up(self, up: bool = True) -> None:
        await self.until(lambda: self.member.up is up)


class Health:
    """A worker whose health and models a test changes."""

    def __init__(self) -> None:
        self.status = 200
        self.models: Any = None  # as vLLM would, unless told otherwise
        self.unavailable: dict[str, bool] = {}  # by path, where it has such paths
        self.asked: list[str] = []

    async def __call__(self, request: Received, reply: Reply) -> None:
        self.asked.append(request.target)
        if request.target == "/health":
            await reply.json({}, status=self.status)
        elif request.target in self.unavailable:
            await reply.json({request.target[1:]: self.unavailable[request.target]})
        elif self.models is None or request.target != "/v1/models":
            await answer_probe(request, reply)
        else:
            await reply.json(self.models)

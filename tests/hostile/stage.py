"""What comes of a case, at the caller and at the worker, and is all of it in order?"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.callers import CHAT, COMPLETIONS, Caller
from tests.e2e.observed import Observed, observed
from tests.fakes import FakeWorker, Received
from tests.hostile.bodies import ROOM
from tests.hostile.cases import Case, Then, get, request

DRIP_S = 0.01
MARK = "the-next-one"
NEXT = get(b"/health", b"X-Request-Id: " + MARK.encode())
TOLD_TO_WORKERS = {"host", "content-type", "accept-encoding", "x-request-id", "content-length"}
HARMLESS_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
OF_AN_ERROR = {"message", "type", "param", "code"}


@dataclass
class Outcome:
    """As in `Case`."""

    answers: list[str] = field(default_factory=list)
    then: Then = "closed"
    seen: list[Received] = field(default_factory=list)

    @property
    def row(self) -> str:
        return f"{', '.join(self.answers) or 'nothing'} | {self.then} | {len(self.seen)}"


class Stage:
    """A gateway, and the worker behind it."""

    def __init__(self, gateway: Observed, worker: FakeWorker) -> None:
        self.gateway = gateway
        self.worker = worker

    async def play(self, case: Case) -> Outcome:
        """Raises AssertionError for what no case allows."""
        outcome = Outcome()
        before = len(self.worker.requests)
        async with Caller(self.gateway.url) as caller:
            caller.say(case.say)
            dripping = asyncio.create_task(_drip(caller, case.drip))
            if case.then == "waits":
                await self._hear_all_and_leave(caller, len(case.answers), outcome)
            else:
                await self._hear_all_and_go_on(caller, case, outcome)
            dripping.cancel()
        await self.gateway.idle()
        outcome.seen = self.worker.requests[before:]
        logged = {line["request_id"]: line for line in self.gateway.log_lines()}
        for received in outcome.seen:
            self._check_seen(received)
            line, body = logged[received.headers["x-request-id"]], received.json()
            assert (line["model"], line["stream"]) == (body["model"], body.get("stream", False))
        return outcome

    async def _hear_all_and_go_on(self, caller: Caller, case: Case, outcome: Outcome) -> None:
        """Hear answers until that to the next request, or the end."""
        if not case.quiet:
            caller.say(NEXT)
        last: dict[str, str] = {}
        with suppress(asyncio.IncompleteReadError):
            while last.get("x-request-id") != MARK:
                last = await self._hear(caller, outcome)
            outcome.answers.pop()
            outcome.then = "goes on"
            assert "connection" not in last
            return
        assert last.get("connection", "close") == "close"

    async def _hear_all_and_leave(self, caller: Caller, answers: int, outcome: Outcome) -> None:
        """Hear so many answers, say one request more, which is no request any more, and leave."""
        for _ in range(answers):
            await self._hear(caller, outcome)
        caller.say(request())
        caller.say_no_more()
        assert await caller.rest() == b""
        outcome.then = "waits"

    async def _hear(self, caller: Caller, outcome: Outcome) -> dict[str, str]:
        status, headers = await caller.head()
        if status == 100:
            outcome.answers.append("100")
            return headers
        body = await caller.exactly(int(headers["content-length"]))
        assert HARMLESS_ID.fullmatch(headers["x-request-id"])
        assert headers["content-type"] == "application/json"
        content = json.loads(body)
        if status < 400:
            outcome.answers.append(str(status))
        else:
            assert content["error"].keys() == OF_AN_ERROR
            assert content["error"]["message"]
            assert status < 500
            outcome.answers.append(f"{status} {content['error']['code']}")
        return headers

    def _check_seen(self, received: Received) -> None:
        """Nothing of the caller's head has reached the worker."""
        assert (received.method, received.target) in (("POST", COMPLETIONS), ("POST", CHAT))
        assert received.headers.keys() == TOLD_TO_WORKERS
        assert received.headers["host"] == f"127.0.0.1:{self.worker.port}"
        assert received.headers["accept-encoding"] == "identity"
        assert HARMLESS_ID.fullmatch(received.headers["x-request-id"])
        assert b"cache_salt" in received.body


async def _drip(caller: Caller, piece: bytes) -> None:
    while piece and caller.may_speak:
        caller.say(piece)
        await asyncio.sleep(DRIP_S)


def meaning(received: Received, of: Any) -> dict[str, Any]:
    """The members of a body by these names, as the worker reads them."""
    body = received.json()
    return {name: body.get(name) for name in of}


@asynccontextmanager
async def stage(**more: Any) -> AsyncIterator[Stage]:
    """With a tenant without limits. Keyword arguments as for `configuration`."""
    server = {"max_body_bytes": ROOM, **more.pop("server", {})}
    async with (
        FakeWorker() as worker,
        observed(worker, **{"tenants": [{"id": "acme"}], "server": server, **more}) as gateway,
    ):
        yield Stage(gateway, worker)

"""Does a request pass the rooms in order, and does every way out give back all and charge what is right?"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway import settings
from gateway.accounting import Ledger
from gateway.admission import Admission
from gateway.auth import Authenticator, FileDirectory
from gateway.dispatch import Dispatcher
from gateway.errors import (
    BadRequest,
    GatewayError,
    Overloaded,
    RateLimited,
    Unauthorized,
    WorkerBroke,
    WorkerFailed,
    WorkerRefusedCredentials,
    WorkerTimeout,
    WorkerUnreachable,
)
from gateway.fleet import Catalogue, Fleet, Member, Slot
from gateway.intake import Intake
from gateway.intake.lengths import Lengths
from gateway.limits import RateLimiter
from gateway.model import Endpoint, Grant, Headers, Incoming, Job, Model, Quota, Quotas, Tenant, Trip, Usage
from gateway.pipeline import Corridor
from gateway.relay import Relay
from gateway.routing import POLICIES
from gateway.stores.memory import MemoryStore
from gateway.upstream import Timeouts, WorkerClient
from tests.conftest import KEY, sha256
from tests.fakes import MODEL, FakeWorker, Received, Reply, Script, framed, sse_event
from tests.gateway.relay.relaying import unframed
from tests.gateway.test_model import Clock, trip

PROMPT = 9  # tokens that are estimated for the bodies below
LIMITED = Tenant("acme", requests_per_minute=60, tokens_per_minute=6000, max_concurrency=2)
FULL = Quotas(Quota(60, 60, 0.0), Quota(6000, 6000, 0.0))


def body(**fields: Any) -> bytes:
    content = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
    return json.dumps(content | fields).encode()


class Caller:
    """One caller's request: gives its body, keeps its answer. It may have a pipe for parts of that."""

    def __init__(self, content: bytes, piped: bool = False) -> None:
        self.content = content
        self.piped = piped
        self.was_read = False
        self.started = False
        self.status = 0
        self.writes: list[bytes] = []
        self.on_write: Callable[[], object] = lambda: None

    async def body(self) -> bytes:
        self.was_read = True
        return self.content

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.writes.append(body)

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status

    async def send(self, data: bytes) -> None:
        self.write(data)

    async def finish(self, data: bytes) -> None:
        self.writes.append(data)

    def pipe(self, on_full: Callable[[bool], None]) -> "Caller | None":
        return self if self.piped else None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.on_write()

    def write_chunks(self, chunks: bytes) -> None:
        self.write(unframed(chunks))


class Keys(FileDirectory):
    """One key, of one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__([], [])
        self.tenants = {tenant.id: tenant}
        self.grants = {bytes.fromhex(sha256(KEY)): Grant(tenant, "acme-1")}


class Hall:
    """A corridor to one worker for one tenant."""

    def __init__(self, url: str, tenant: Tenant = LIMITED, limit: int = 1, first_byte_s: float = 60) -> None:
        self.clock = clock = Clock()
        self.tenant = tenant
        self.store = MemoryStore(clock)
        self.ledger = Ledger(clock, lambda line: None)
        self.fleet = Fleet(settings.Fleet(), [Member("w0", MODEL, limit, up=True)], clock)
        self.member = self.fleet.members["w0"]
        self.client = WorkerClient(url, timeouts=Timeouts(5, first_byte_s, 60), idle_s=60, max_age_s=60)
        clients, rules = {self.member: self.client}, settings.Routing()
        dispatcher = Dispatcher(self.fleet, POLICIES["round_robin"], clients, self.ledger, clock, rules)
        self.admission: Admission[Slot] = Admission(
            settings.Admission(max_queued=1), dispatcher.place, clock, self.ledger.queued
        )
        self.fleet.on_room = self.admission.wake
        self.corridor = Corridor(
            auth=Authenticator(Keys(tenant), b"secret"),
            intake=Intake(settings.Intake(), Lengths([1024], 4096), Catalogue({Model(MODEL, 2048, 256): []})),
            limits=RateLimiter(self.store),
            admission=self.admission,
            dispatcher=dispatcher,
            relay=Relay(clock),
            ledger=self.ledger,
        )
        self.trip: Trip = trip(began=clock())

    async def walk(self, caller: Caller, key: str = KEY) -> None:
        fields = {b"authorization": b"Bearer " + key.encode()}
        await self.corridor.walk(Incoming("req-1", Endpoint.CHAT, fields), caller, self.trip)

    def read(self, content: bytes) -> Job:
        """What the intake makes of a body now."""
        fields = {b"authorization": b"Bearer " + KEY.encode()}
        incoming = Incoming("other", Endpoint.CHAT, fields)
        caller = self.corridor.auth.recognise(fields)
        assert caller is not None
        return self.corridor.intake.read(incoming, content, caller)

    async def fails(self, kind: type[GatewayError], caller: Caller | None = None, **more: Any) -> Any:
        with pytest.raises(kind) as caught:
            await self.walk(caller or Caller(body()), **more)
        return caught.value

    async def charged(self) -> tuple[int, int]:
        """Requests and tokens that the tenant has paid for."""
        quotas = await self.store.look(self.tenant)
        assert quotas.requests is not None
        assert quotas.tokens is not None
        return 60 - quotas.requests.remaining, 6000 - quotas.tokens.remaining


@asynccontextmanager
async def hall(script: Script | None = None, **more: Any) -> AsyncIterator[tuple[Hall, FakeWorker]]:
    """At the end, whatever happened, everything that was taken is back."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(FakeWorker(script))
        made = Hall(worker.url, **more)
        stack.push_async_callback(made.client.aclose)
        yield made, worker
        load = made.member.load
        assert (load.requests, load.prefilling, load.prefill_tokens, load.decode_tokens) == (0, 0, 0, 0)
        assert made.store.leases(made.tenant) == 0
        assert made.client.busy == 0


def answers(status: int, content: object) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json(content, status=status)

    return script


# Good ways


async def test_an_answer_is_brought_and_its_real_tokens_are_charged() -> None:
    async with hall() as (at, worker):
        caller = Caller(body())
        await at.walk(caller)
        assert (caller.status, at.trip.outcome, at.trip.usage) == (200, "ok", Usage(7, 8))
        assert json.loads(b"".join(caller.writes))["usage"]["prompt_tokens"] == 7
        assert await at.charged() == (1, 15)
        assert at.trip.caller is not None
        assert at.trip.job is not None
        assert (at.trip.caller.tenant, at.trip.job.prompt_tokens) == (LIMITED, PROMPT)
        assert at.trip.quotas is not None
        assert at.trip.quotas.requests == Quota(60, 59, 1.0)
        assert at.trip.quotas.tokens is not None
        assert (
            at.trip.quotas.tokens.remaining == 6000 - PROMPT - 20
        )  # as reserved: the answer tells before it is settled
        assert worker.requests[0].json()["max_tokens"] == 20


@pytest.mark.parametrize("piped", [False, True])
async def test_a_stream_costs_what_a_plain_answer_costs_and_its_gaps_are_counted(piped: bool) -> None:
    async with hall() as (at, _):
        caller = Caller(body(stream=True), piped)
        await at.walk(caller)
        assert caller.writes[-1].endswith(b"data: [DONE]\n\n")
        assert b'"usage"' not in b"".join(caller.writes)
        assert await at.charged() == (1, 15)
        assert at.trip.gaps is not None


async def test_a_plain_answer_has_no_gaps() -> None:
    async with hall() as (at, _):
        await at.walk(Caller(body()))
        assert at.trip.gaps is None


async def test_what_a_worker_counted_corrects_the_next_estimate() -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 1}
    long = body(messages=[{"role": "user", "content": "x" * 4000}], max_tokens=1)
    async with hall(answers(200, {"usage": usage}), tenant=Tenant("acme")) as (at, _):
        first = at.read(long).prompt_tokens
        await at.walk(Caller(long))
        assert at.read(long).prompt_tokens > first


async def test_what_a_worker_counted_corrects_what_is_expected_of_the_next_answer() -> None:
    async with hall() as (at, _):
        assert at.read(body()).expected_output_tokens == 20
        await at.walk(Caller(body()))
        assert at.read(body()).expected_output_tokens == 8


# Ways out before the worker


async def test_a_stranger_is_sent_away_before_the_body_is_read() -> None:
    async with hall() as (at, worker):
        caller = Caller(body())
        await at.fails(Unauthorized, caller, key="sk-unknown")
        assert (caller.was_read, at.trip.caller, at.trip.quotas) == (False, None, None)
        assert worker.requests == []


async def test_a_body_that_cannot_be_read_costs_nothing_and_the_limits_are_told() -> None:
    async with hall() as (at, worker):
        await at.fails(BadRequest, Caller(b"{"))
        assert (at.trip.job, at.trip.quotas) == (None, FULL)
        assert await at.charged() == (0, 0)
        assert worker.requests == []


async def test_a_refusal_by_a_limit_is_counted_by_its_kind_and_tells_the_limits() -> None:
    async with hall(tenant=Tenant("acme", requests_per_minute=60, tokens_per_minute=20)) as (at, worker):
        error = await at.fails(RateLimited)
        assert (error.kind, error.should_retry) == ("tokens", False)
        assert at.trip.quotas == Quotas(Quota(60, 60, 0.0), Quota(20, 20, 0.0))
        assert at.ledger.limited == {("tokens",): 1}
        assert worker.requests == []


async def test_a_full_queue_costs_nothing() -> None:
    async with hall() as (at, _):
        busy = at.fleet.occupy("w0", at.read(body()))
        waiting = asyncio.create_task(at.walk(Caller(body())))
        while not at.admission.depth():  # noqa: ASYNC110 - each pass of the loop brings it further
            await asyncio.sleep(0)
        before = await at.charged()
        waiting_trip, at.trip = at.trip, trip()
        await at.fails(Overloaded)
        assert await at.charged() == before
        busy.close()
        await waiting
        assert waiting_trip.outcome == "ok"
        assert await at.charged() == (1, 15)


async def test_who_leaves_the_queue_pays_nothing() -> None:
    async with hall() as (at, worker):
        busy = at.fleet.occupy("w0", at.read(body()))
        walking = asyncio.create_task(at.walk(Caller(body())))
        while not at.admission.depth():  # noqa: ASYNC110 - each pass of the loop brings it further
            await asyncio.sleep(0)
        assert await at.charged() == (1, 29)
        walking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walking
        busy.close()
        assert await at.charged() == (0, 0)
        assert worker.requests == []


# Ways out at the worker


@pytest.mark.parametrize(
    ("status", "kind", "counted"),
    [
        (500, WorkerFailed, {("w0", "failed"): 1}),
        (401, WorkerRefusedCredentials, {("w0", "credentials"): 1}),
        (503, Overloaded, {("w0", "busy"): 1}),
    ],
)
async def test_a_workers_failure_costs_nothing(
    status: int, kind: type[GatewayError], counted: dict[tuple[str, str], int]
) -> None:
    async with hall(answers(status, {})) as (at, _):
        await at.fails(kind)
        assert await at.charged() == (0, 0)
        assert at.ledger.worker_failures == counted
        assert at.trip.quotas is not None


async def test_a_workers_own_refusal_costs_nothing() -> None:
    async with hall(answers(400, {"error": {"message": "no"}})) as (at, _):
        caller = Caller(body())
        await at.walk(caller)
        assert (caller.status, at.trip.outcome) == (400, "worker_refused")
        assert await at.charged() == (0, 0)
        assert at.ledger.worker_failures == {}


async def test_a_worker_out_of_reach_is_counted_once_and_costs_nothing() -> None:
    async with hall() as (at, worker):
        await worker.stop()
        await at.fails(WorkerUnreachable)
        assert at.ledger.worker_failures == {("w0", "unreachable"): 1}
        assert await at.charged() == (0, 0)


async def test_a_worker_that_does_not_answer_in_time_costs_the_caller_nothing() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with hall(silent, first_byte_s=0.05) as (at, _):
        await at.fails(WorkerTimeout)
        assert at.ledger.worker_failures == {("w0", "first_byte_timeout"): 1}
        assert await at.charged() == (0, 0)


@pytest.mark.parametrize("piped", [False, True])
async def test_a_stream_that_breaks_costs_its_prompt_and_what_came_of_it(piped: bool) -> None:
    async def breaks(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(3):
            await reply.event({"choices": [{"text": "a"}]})
        await reply.send(b"no chunk\r\n")

    async with hall(breaks) as (at, _):
        caller = Caller(body(stream=True), piped)
        await at.fails(WorkerBroke, caller)
        assert at.trip.events == 3
        assert await at.charged() == (1, PROMPT + 3)
        assert at.ledger.worker_failures == {("w0", "broke"): 1}


@pytest.mark.parametrize("piped", [False, True])
async def test_what_a_worker_made_just_before_it_broke_is_paid_for(piped: bool) -> None:
    async def breaks(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await has_begun.wait()
        await reply.send(framed(sse_event({"choices": [{"text": "b"}]})) * 2 + b"no chunk\r\n")  # in one

    has_begun = asyncio.Event()
    async with hall(breaks) as (at, _):
        caller = Caller(body(stream=True), piped)
        caller.on_write = has_begun.set
        await at.fails(WorkerBroke, caller)
        assert at.trip.events == 3
        assert b"".join(caller.writes).count(b"data:") == 3
        assert await at.charged() == (1, PROMPT + 3)


@pytest.mark.parametrize("piped", [False, True])
async def test_a_worker_that_is_lost_after_its_last_event_has_not_failed(piped: bool) -> None:
    async def leaves(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await has_begun.wait()
        await reply.event(b"[DONE]")
        reply.close()

    has_begun = asyncio.Event()
    async with hall(leaves) as (at, _):
        caller = Caller(body(stream=True), piped)
        caller.on_write = has_begun.set
        await at.walk(caller)
        assert (at.trip.outcome, at.ledger.worker_failures) == ("ok", {})
        assert caller.writes[-1] == b"data: [DONE]\n\n"
        assert await at.charged() == (1, PROMPT + 1)


@pytest.mark.parametrize("piped", [False, True])
async def test_an_answer_without_usage_costs_what_was_estimated_and_seen(piped: bool) -> None:
    async def without_usage(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await reply.done()

    async with hall(without_usage) as (at, _):
        await at.walk(Caller(body(stream=True), piped))
        assert await at.charged() == (1, PROMPT + 1)


async def test_who_leaves_while_the_worker_reads_the_prompt_pays_for_the_prompt() -> None:
    began = asyncio.Event()

    async def silent(request: Received, reply: Reply) -> None:
        began.set()
        await reply.peer_closed()

    async with hall(silent) as (at, worker):
        walking = asyncio.create_task(at.walk(Caller(body())))
        await began.wait()
        walking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walking
        assert await at.charged() == (1, PROMPT)
        await worker.closed_by_peer(1)


@pytest.mark.parametrize("piped", [False, True])
async def test_who_leaves_in_mid_stream_pays_for_what_was_made(piped: bool) -> None:
    async def endless(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await reply.peer_closed()

    async with hall(endless) as (at, worker):
        caller = Caller(body(stream=True), piped)
        walking = asyncio.create_task(at.walk(caller))
        caller.on_write = walking.cancel
        with pytest.raises(asyncio.CancelledError):
            await walking
        assert await at.charged() == (1, PROMPT + 1)
        await worker.closed_by_peer(1)
        assert at.ledger.worker_failures == {}

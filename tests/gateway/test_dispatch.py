"""Does a request go to the best worker that has room, and elsewhere only if it cannot have begun?"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway import settings
from gateway.accounting import Ledger
from gateway.admission import Admission
from gateway.dispatch import BUDGET_FEW_PER_S, STEP_TOKENS, Dispatcher, RetryBudget
from gateway.errors import (
    NoWorker,
    WorkerBroke,
    WorkerBusy,
    WorkerError,
    WorkerFailed,
    WorkerUnreachable,
)
from gateway.fleet import Fleet, Member, Slot
from gateway.model import Job, Trip, Worker
from gateway.relay.failures import worker_failure
from gateway.routing import Policy
from gateway.upstream import Timeouts, WorkerClient
from tests.fakes import FakeWorker, Received, Reply, Script
from tests.gateway.test_model import Clock, job, trip


def in_order(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
    """A policy that tells its turn by what it prefers: an even one the first, an odd one the last."""
    return workers if turn % 2 == 0 else workers[::-1]


class Hall:
    """Workers, the clients for them, and a dispatcher that takes their places."""

    def __init__(self, urls: dict[str, str], limit: int = 2, routing: Any = None, **rules: Any) -> None:
        self.clock = Clock()
        self.fleet = Fleet(
            settings.Fleet(**rules), [Member(id, "small", limit, up=True) for id in urls], self.clock
        )
        self.ledger = Ledger(self.clock, lambda line: None)
        timeouts = Timeouts(connect_s=5, first_byte_s=60, gap_s=60)
        self.clients = {
            self.fleet.members[id]: WorkerClient(url, timeouts=timeouts, idle_s=60, max_age_s=60)
            for id, url in urls.items()
        }
        self.policy: Policy = in_order
        self.dispatcher = Dispatcher(
            self.fleet,
            lambda *asked: self.policy(*asked),
            self.clients,
            self.ledger,
            self.clock,
            settings.Routing(**(routing or {})),
        )
        self.admission: Admission[Slot] = Admission(
            settings.Admission(), self.dispatcher.place, self.clock, self.ledger.queued
        )

    async def ask(self, walked: Trip, asked: Job | None = None) -> int:
        """As the corridor does; returns the answer's status."""
        asked = asked or job()
        with await self.admission.enter(asked, walked) as turn:
            while True:
                try:
                    with await self.dispatcher.open(asked, turn, walked) as answer:
                        if answer.status >= 500:
                            raise worker_failure(answer.status, await answer.read())
                        return answer.status
                except (WorkerError, WorkerBusy) as error:
                    if not self.dispatcher.failed(asked, turn, walked, error):
                        raise

    def in_flight(self) -> dict[str, int]:
        return {member.id: member.in_flight for member in self.fleet.members.values()}


@asynccontextmanager
async def hall(*workers: FakeWorker | str, **more: Any) -> AsyncIterator[Hall]:
    """Workers w0, w1 and so on; at the end, no place is taken and no connection open."""
    urls = {f"w{n}": of if isinstance(of, str) else of.url for n, of in enumerate(workers)}
    made = Hall(urls, **more)
    async with AsyncExitStack() as stack:
        for client in made.clients.values():
            stack.push_async_callback(client.aclose)
        yield made
    assert set(made.in_flight().values()) <= {0}
    assert {client.busy for client in made.clients.values()} <= {0}


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port that is taken, and that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


# Ranking


async def test_the_policy_is_told_how_long_the_request_has_waited() -> None:
    async with hall("http://a") as at:
        told: list[float] = []

        def hold_back(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
            told.append(waited_s)
            return ()

        at.policy = hold_back
        assert at.dispatcher.place(job(), 0.5) is None
        assert told == [0.5]


async def test_of_short_prompts_a_worker_begins_as_many_as_it_can_in_a_step() -> None:
    async with hall("http://a", limit=99, routing={"max_prefills": 2}) as at:
        slots = [at.dispatcher.place(job(prompt_tokens=STEP_TOKENS // 4)) for _ in range(5)]
        assert [slot is not None for slot in slots] == [True] * 4 + [False]
        first = slots[0]
        assert first is not None
        first.first_token()  # three are left, which are more than two, and fewer tokens than a step's
        slots.append(at.dispatcher.place(job(prompt_tokens=10)))
        assert slots[-1] is not None
        for slot in filter(None, slots):
            slot.close()


async def test_of_longer_ones_only_so_many() -> None:
    async with hall("http://a", limit=99, routing={"max_prefills": 2}) as at:
        slots = [at.dispatcher.place(job(prompt_tokens=STEP_TOKENS)) for _ in range(3)]
        assert [slot is not None for slot in slots] == [True, True, False]
        for slot in filter(None, slots):
            slot.close()


async def test_a_place_is_taken_at_the_worker_that_the_policy_puts_first() -> None:
    async with hall("http://a", "http://b") as at:
        slot = at.dispatcher.place(job())
        assert slot is not None
        assert slot.member.id == "w0"
        assert at.in_flight() == {"w0": 1, "w1": 0}
        slot.close()


async def test_each_place_taken_is_a_turn() -> None:
    async with hall("http://a", "http://b") as at:
        slots = [at.dispatcher.place(job()) for _ in range(4)]
        assert [slot and slot.member.id for slot in slots] == ["w0", "w1", "w0", "w1"]
        assert at.dispatcher.place(job()) is None  # all are full: no turn
        for slot in slots:
            assert slot is not None
            slot.close()
        slot = at.dispatcher.place(job())
        assert slot is not None
        assert slot.member.id == "w0"
        slot.close()


async def test_a_full_worker_is_passed_over() -> None:
    async with hall("http://a", "http://b", limit=1) as at:
        busy = at.fleet.occupy("w0", job())
        slot = at.dispatcher.place(job())
        assert slot is not None
        assert slot.member.id == "w1"
        assert at.dispatcher.place(job()) is None
        slot.close()
        busy.close()


async def test_a_worker_reads_one_long_prompt_at_a_time_and_short_ones_beside_it() -> None:
    async with hall("http://127.0.0.1:9", "http://127.0.0.1:9", limit=9) as at:
        long = [at.dispatcher.place(job(is_long=True)) for _ in range(3)]
        assert [slot and slot.member.id for slot in long] == ["w0", "w1", None]
        short = at.dispatcher.place(job())
        assert short is not None
        assert long[0] is not None
        long[0].first_token()
        again = at.dispatcher.place(job(is_long=True))
        assert again is not None
        assert again.member.id == "w0"
        for slot in (*long, short, again):
            if slot is not None:
                slot.close()


async def test_a_worker_that_is_avoided_gets_what_the_others_have_no_room_for() -> None:
    async with hall("http://a", "http://b", limit=1) as at:
        at.fleet.busy(at.fleet.members["w0"], 60)
        slots = [at.dispatcher.place(job()) for _ in range(3)]
        assert [slot and slot.member.id for slot in slots] == ["w1", "w0", None]
        for slot in filter(None, slots):
            slot.close()


async def test_where_no_worker_is_well_it_is_said() -> None:
    async with hall("http://a") as at:
        with pytest.raises(NoWorker):
            at.dispatcher.place(job(model="large"))


# Opening


async def test_the_request_arrives_with_its_id_and_its_bytes() -> None:
    async with FakeWorker() as worker, hall(worker) as at:
        walked, asked = trip(), job(body=(b'{"a":1', memoryview(b',"b":2}')))
        enter, open_ = at.admission.enter, at.dispatcher.open
        with await enter(asked, walked) as turn, await open_(asked, turn, walked) as answer:
            assert answer.status == 200
        [request] = worker.requests
    assert (request.target, request.body) == ("/v1/chat/completions", b'{"a":1,"b":2}')
    assert request.headers["x-request-id"] == "req-1"
    assert "authorization" not in request.headers
    assert (walked.worker, walked.sent_at) == ("w0", at.clock.now)
    assert (at.ledger.retries, at.ledger.worker_failures) == (0, {})


async def test_a_worker_out_of_reach_is_replaced_by_another(nowhere: str) -> None:
    async with FakeWorker() as worker, hall(nowhere, worker) as at:
        walked = trip()
        assert await at.ask(walked) == 200
        assert (walked.worker, walked.tried, walked.sent_at) == ("w1", ("w0",), at.clock.now)
        assert (at.ledger.retries, at.ledger.worker_failures) == (1, {("w0", "unreachable"): 1})
        assert at.fleet.members["w0"].failures == 1


async def test_where_all_others_are_full_the_failure_is_told(nowhere: str) -> None:
    async with hall(nowhere, "http://full", limit=1) as at:
        busy = at.fleet.occupy("w1", job())
        walked = trip()
        with pytest.raises(WorkerUnreachable):
            await at.ask(walked)
        busy.close()
        assert (walked.worker, walked.sent_at) == ("w0", None)
        assert (at.ledger.retries, at.ledger.worker_failures) == (0, {("w0", "unreachable"): 1})


async def test_a_request_that_only_went_into_a_stale_connection_was_not_sent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await reader.readuntil(b"{}")
        server.close()  # nobody listens any more, and the connection ends without a byte
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with hall(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as at:
        walked = trip()
        enter, open_ = at.admission.enter, at.dispatcher.open
        with await enter(job(), walked) as turn, await open_(job(), turn, walked) as answer:
            assert await answer.read() == b""
        seen = [walked.sent_at]
        with pytest.raises(WorkerUnreachable):
            await at.ask(walked)
        assert [*seen, walked.sent_at] == [at.clock.now, None]
    await server.wait_closed()


async def test_no_more_than_three_workers_are_tried(nowhere: str) -> None:
    async with hall(*[nowhere] * 4) as at:
        with pytest.raises(WorkerUnreachable):
            await at.ask(trip())
        assert at.ledger.retries == 2
        assert sum(at.ledger.worker_failures.values()) == 3
        assert [member.failures for member in at.fleet.members.values()].count(0) == 1


async def test_when_the_last_worker_is_down_the_caller_hears_that_there_is_none(nowhere: str) -> None:
    async with hall(nowhere, failures=1) as at:
        with pytest.raises(NoWorker):
            await at.ask(trip())
        assert not at.fleet.members["w0"].up
        assert at.ledger.worker_failures == {("w0", "unreachable"): 1}


async def test_a_worker_that_may_have_begun_is_not_replaced() -> None:
    async def dies(request: Received, reply: Reply) -> None:
        reply.reset()

    async with FakeWorker(dies) as first, FakeWorker() as second, hall(first, second) as at:
        walked = trip()
        with pytest.raises(WorkerBroke):
            await at.ask(walked)
        assert (len(first.requests), len(second.requests)) == (1, 0)
        assert (walked.worker, at.ledger.retries) == ("w0", 0)
        assert at.ledger.worker_failures == {("w0", "broke"): 1}
        assert walked.sent_at is not None


def answers(status: int, message: str = "") -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": message}}, status=status)

    return script


ENDING = answers(500, "cannot schedule new futures after shutdown")


@pytest.mark.parametrize(("refusal", "kind"), [(ENDING, "declined"), (answers(503), "busy")])
async def test_a_worker_that_says_that_it_has_not_begun_is_replaced(refusal: Script, kind: str) -> None:
    async with FakeWorker(refusal) as first, FakeWorker() as second, hall(first, second) as at:
        walked = trip()
        assert await at.ask(walked) == 200
        assert (walked.tried, walked.worker) == (("w0",), "w1")
        assert (at.ledger.retries, at.ledger.worker_failures) == (1, {("w0", kind): 1})


async def test_a_worker_s_other_failures_are_told() -> None:
    async with (
        FakeWorker(answers(500, "EngineCore")) as first,
        FakeWorker() as second,
        hall(first, second) as at,
    ):
        with pytest.raises(WorkerFailed):
            await at.ask(trip())
        assert (at.ledger.retries, at.ledger.worker_failures) == (0, {("w0", "failed"): 1})


async def test_where_all_are_busy_nobody_is_asked_twice_and_they_are_asked_all_the_same_next_time() -> None:
    busy = answers(503)
    async with FakeWorker(busy) as first, FakeWorker(busy) as second, hall(first, second) as at:
        for walked in (trip(), trip(), trip()):
            with pytest.raises(WorkerBusy):
                await at.ask(walked)
        # the first finds w1 not known to be busy; then both are
        assert len(first.requests) + len(second.requests) == 4
        assert at.ledger.retries == 1


async def test_a_worker_out_of_reach_is_replaced_even_by_one_that_is_busy(nowhere: str) -> None:
    async with FakeWorker() as worker, hall(nowhere, worker) as at:
        at.fleet.busy(at.fleet.members["w1"], 60)
        walked = trip()
        assert await at.ask(walked) == 200
        assert walked.worker == "w1"


async def test_retries_are_a_tenth_of_what_is_asked_and_a_few(nowhere: str) -> None:
    async with FakeWorker() as worker, hall(nowhere, worker, failures=10**6) as at:
        at.policy = lambda job, workers, turn, waited_s: sorted(workers, key=lambda of: of.id)  # w0 first
        statuses = []
        for _ in range(100):
            try:
                statuses.append(await at.ask(trip()))
            except WorkerUnreachable:
                statuses.append(502)
        assert statuses[:3] == [200] * 3
        assert at.ledger.retries == statuses.count(200) == 3 + 100 // 10


# What answers tell


@pytest.mark.parametrize(
    ("outcome", "status", "failed", "count"),
    [("ok", 200, 0, 0), ("incomplete", 200, 2, 1), ("worker_refused", 400, 1, 0)],
)
async def test_an_answer_speaks_for_or_against_its_worker(
    outcome: str, status: int, failed: int, count: int
) -> None:
    async with hall("http://a") as at:
        member, walked = at.fleet.members["w0"], trip()
        member.health.failed = 1
        walked.outcome, walked.status = outcome, status
        at.dispatcher.ended(member, walked)
        assert member.health.failed == failed
        assert at.ledger.worker_failures[member.id, "incomplete"] == count


async def test_a_worker_that_refuses_for_its_own_limit_is_avoided_for_a_while() -> None:
    async with hall("http://a", "http://b") as at:
        walked = trip()
        walked.outcome, walked.status = "worker_refused", 429
        at.dispatcher.ended(at.fleet.members["w0"], walked)
        assert [worker.id for worker in at.fleet.workers(job())] == ["w1"]


# The budget


def test_a_quiet_gateway_has_a_few_retries_and_gets_them_back() -> None:
    clock = Clock()
    budget = RetryBudget(clock)
    assert [budget.withdraw() for _ in range(4)] == [True, True, True, False]
    clock.now += 1 / BUDGET_FEW_PER_S
    assert [budget.withdraw() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [budget.withdraw() for _ in range(4)] == [True, True, True, False]


def test_a_burst_of_retries_is_bounded() -> None:
    budget = RetryBudget(Clock())
    for _ in range(10**5):
        budget.deposit()
    assert [budget.withdraw() for _ in range(200)].count(True) == 100

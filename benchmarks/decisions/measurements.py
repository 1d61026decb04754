"""How long does one decision take, of a process that does nothing else?

Processor time, as decisions wait for nothing. Of several rounds of many decisions the fastest counts: what
makes others slower is other work on the machine.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.targets import Row
from gateway import settings
from gateway.accounting import Ledger
from gateway.dispatch import Dispatcher
from gateway.estimates import chain
from gateway.fairness import FairQueue, Ticket
from gateway.fleet import Fleet, Member
from gateway.model import Caller, Endpoint, Job, Tenant
from gateway.peers import Others, Report, encode
from gateway.routing import POLICIES

MODEL = "model"
FIRST = next(iter(POLICIES))  # the default
TENANTS = 50  # of those who wait
LONG_PROMPT_BYTES = 64 * 1024
MOST_RANK_US = 15.0
MOST_QUEUE_US = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    workers: int
    waiting: int
    decisions: int  # in a round
    rounds: int


def rows(plan: Plan) -> list[Row]:
    """All figures, in microseconds a decision."""
    short, cached = _job(400), _job(LONG_PROMPT_BYTES // 4, LONG_PROMPT_BYTES)
    one = f"rank {plan.workers} workers"
    found = [
        Row(f"{one}: {policy}", _rank_us(plan, policy, short), "µs", at_most=MOST_RANK_US)
        for policy in POLICIES
    ]
    return [
        *found,
        Row(f"{one}: the first, for a prompt of 64 KiB that one has", _rank_us(plan, FIRST, cached), "µs"),
        Row(f"{one}: the first, beside 3 other processes", _rank_us(plan, FIRST, short, 3), "µs"),
        Row(
            f"enter and leave a queue in which {plan.waiting} wait",
            _queue_us(plan),
            "µs",
            at_most=MOST_QUEUE_US,
        ),
    ]


def _rank_us(plan: Plan, policy: str, job: Job, siblings: int = 0) -> float:
    """Look at all workers, sort them, and take the first that has room; not: count the request there."""
    others = _others(plan.workers, siblings) if siblings else None
    members = [Member(f"w{number}", MODEL, 256, up=True) for number in range(plan.workers)]
    fleet = Fleet(settings.Fleet(), members, time.monotonic, 1, others)
    for number, member in enumerate(members):
        for _ in range(number + 1):
            fleet.occupy(member.id, _job(100 + number))
    fleet.occupy("w0", job)
    ranking = POLICIES[policy]
    dispatcher = Dispatcher(
        fleet, ranking, {}, Ledger(time.monotonic, _ignore), time.monotonic, settings.Routing()
    )

    def decide() -> None:
        for worker in ranking(job, fleet.workers(job), 1, 0.0):
            if dispatcher._has_room(worker, job.is_long):
                return

    return _fastest_us(plan, decide)


def _queue_us(plan: Plan) -> float:
    """Push one ticket, look who is next, dispatch and settle that; as many wait after as before."""
    queue: FairQueue[None] = FairQueue(30_000.0)
    count = 0

    def push() -> None:
        nonlocal count
        count += 1
        tenant = f"t{count * 7 % TENANTS}"
        tokens = 50 + count * 37 % 750
        queue.push(Ticket(tenant, 1.0, "default", MODEL, 0, 0, tokens, tokens + 250, count / 1000, None))

    for _ in range(plan.waiting):
        push()

    def decide() -> None:
        push()
        ticket = queue.peek(MODEL)
        assert ticket is not None
        queue.dispatch(ticket)
        queue.settle(ticket, ticket.total_work + 10)

    return _fastest_us(plan, decide)


def _others(workers: int, count: int) -> Others:
    """Some other processes, with something at each worker."""
    others = Others("this", time.monotonic, count + 1)
    members = [Member(f"w{number}", MODEL, 256, up=True) for number in range(workers)]
    elsewhere = Fleet(settings.Fleet(), members)
    for member in members:
        elsewhere.occupy(member.id, _job(100))
    report = encode(Report(elsewhere.shares()))
    others.update({f"other-{number}": report for number in range(count)}, 1.0)
    others._fresh_until_s = float("inf")  # however long it takes to measure
    return others


def _fastest_us(plan: Plan, decide: Callable[[], None]) -> float:
    fastest_s = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(plan.rounds):
            began_s = time.process_time()
            for _ in range(plan.decisions):
                decide()
            fastest_s = min(fastest_s, time.process_time() - began_s)
    finally:
        gc.enable()
    return fastest_s / plan.decisions * 1e6


def _job(prompt_tokens: int, prompt_bytes: int = 0) -> Job:
    prompt = memoryview(b"a" * prompt_bytes)
    return Job(
        id="request",
        endpoint=Endpoint.CHAT,
        caller=Caller(Tenant("tenant"), "key", "salt"),
        model=MODEL,
        stream=True,
        wants_usage=False,
        prompt_tokens=prompt_tokens,
        prompt_bytes=prompt_bytes,
        max_output_tokens=256,
        max_tokens_given=True,
        expected_output_tokens=125,
        sequences=1,
        bucket=0,
        is_long=False,
        body=(),
        chain=chain("salt", prompt, prompt_tokens),
    )


def _ignore(line: dict[str, object]) -> None:
    """No log is kept."""

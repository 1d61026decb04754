"""A gateway is killed with streams under way: when are its slots free again, and only its slots?"""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from benchmarks.footprint.streams import chat
from benchmarks.outage.caller import Answer, ask
from benchmarks.outage.rig import Stand
from benchmarks.outage.visits import Visits
from benchmarks.outage.worker import MODEL
from benchmarks.targets import Row

INTERVAL_S = 0.1
TENANT = "shared"
SLOTS = 3
LOST, KEPT, OTHER = "lost", "kept", "other"  # streams: of the gateway that dies, of the other, and newcomers
OTHER_TOKENS = 5
HAMMERERS = 4  # more than the slots there are
PAUSE_S = 0.1  # of a refused one
SPARE_S = 5.0  # after a lease's time, for slots to be in use again


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    kept_s: float = 100.0  # of the stream that goes on: longer than any lease that is not renewed
    before_s: float = 1.0  # from when all slots are taken to the kill
    lease_ttl_s: float = 30.0

    @property
    def duration_s(self) -> float:
        return self.kept_s


async def measure(stand: Stand, plan: Plan) -> list[Row]:
    """Raises ServiceFailed or httpx.HTTPError where a gateway does not serve."""
    visits, key = stand.worker.visits, stand.key(TENANT)
    tokens = round(plan.kept_s / INTERVAL_S)
    lost, kept = (chat(MODEL, tokens, tag, stream=True) for tag in (LOST, KEPT))
    other = chat(MODEL, OTHER_TOKENS, OTHER, stream=True)
    over = asyncio.Event()
    async with (
        stand.gateways(2, {TENANT: {"max_concurrency": SLOTS}}, lease_ttl_s=plan.lease_ttl_s) as (one, two),
        asyncio.TaskGroup() as group,
    ):
        for _ in range(SLOTS - 1):
            group.create_task(ask(one.url, key, lost))
        stream = group.create_task(ask(two.url, key, kept))
        await visits.come(LOST, SLOTS - 1)
        await visits.come(KEPT, 1)
        newcomer = functools.partial(ask, two.url, key, other)
        hammering = [group.create_task(_hammer(newcomer, over)) for _ in range(HAMMERERS)]
        await asyncio.sleep(plan.before_s)
        one.service.process.kill()
        killed_s = time.monotonic()
        answer = await stream
        over.set()
    statuses = sum((task.result() for task in hammering), Counter[int]())
    return rows(plan, visits, killed_s, answer, statuses)


async def _hammer(one: Callable[[], Coroutine[Any, Any, Answer]], over: asyncio.Event) -> Counter[int]:
    """Ask again and again. Returns how often each status came."""
    statuses: Counter[int] = Counter()
    while not over.is_set():
        answer = await one()
        statuses[answer.status] += 1
        if answer.status != 200:
            await asyncio.sleep(PAUSE_S)
    return statuses


def rows(plan: Plan, visits: Visits, killed_s: float, stream: Answer, statuses: Counter[int]) -> list[Row]:
    """stream: of the gateway that lives. statuses: of the others there."""
    limit_s = plan.lease_ttl_s + SPARE_S
    first_s, both_s = (visits.reached_s(OTHER, count, killed_s) for count in (1, SLOTS - 1))
    never_s = stream.ended_s - killed_s  # it was watched for so long
    odd = statuses.total() - statuses[200] - statuses[429]
    return [
        Row(
            "from the kill to the first other granted", never_s if first_s is None else first_s, "s", limit_s
        ),
        Row("from the kill to both slots in use", never_s if both_s is None else both_s, "s", limit_s),
        Row("most at the worker at once", visits.most(), "", SLOTS, SLOTS),
        Row("most others beside the stream that is kept", visits.most_beside(OTHER, KEPT), "", SLOTS - 1),
        Row(f"stream of {plan.kept_s:g} s, whole", int(stream.is_served), "", 1, 1),
        Row("others refused", statuses[429], "", None, 1),
        Row("others granted", statuses[200]),
        Row("others answered neither 200 nor 429", odd, "", 0),
    ]

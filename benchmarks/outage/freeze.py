"""Redis freezes under load and goes on: who waits for it, what do limits grant, and when is all as before?"""

import asyncio
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.footprint.streams import chat
from benchmarks.outage.caller import REMAINING, Answer, ask, ask_steadily
from benchmarks.outage.rig import ABOUT_REDIS, Gateway, Stand, frozen
from benchmarks.outage.worker import MODEL
from benchmarks.targets import Row
from deploy.services import ServiceFailed
from gateway.stores.fallback import SHARE

PROCESSES = 2
INTERVAL_S = 0.1
AMPLE, LIMITED = "ample", "limited"  # tenants: one reaches no limit, the other all the time
STREAMED = "streamed"
WAIT_LIMIT_S = 0.3  # longer than store.timeout_ms, of which it is the consequence
RECOVERY_S = 5.0
LOG_LINES = 9  # fewer than ten
SETTLE_S = 10.0
GIVE_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    warm_up_s: float = 3.0
    before_s: float = 10.0  # with the warm-up longer than it takes each process to count the others
    freeze_s: float = 30.0
    after_s: float = 5.0  # from the recovery on
    per_s: float = 200.0  # of the ample tenant
    limited_per_s: float = 10.0
    limited_per_minute: int = 60
    streams: int = 10
    lease_ttl_s: float = 30.0

    @property
    def duration_s(self) -> float:
        return self.warm_up_s + self.before_s + self.freeze_s + self.after_s


@dataclass(frozen=True, slots=True)
class Course:
    """What happened. Times are those of `time.monotonic`."""

    frozen_s: float
    thawed_s: float
    recovered_s: float
    ample: Sequence[Answer]
    limited: Sequence[Answer]
    streams: Sequence[Answer]

    def quiet(self, answers: Sequence[Answer], since_s: float) -> list[Answer]:
        """Those of which the freeze saw nothing."""
        return [each for each in answers if each.begun_s >= since_s and each.ended_s < self.frozen_s]

    def struck(self, answers: Sequence[Answer]) -> list[Answer]:
        """Those that were under way at some time of the freeze."""
        return [each for each in answers if each.ended_s >= self.frozen_s and each.begun_s < self.thawed_s]


async def measure(stand: Stand, plan: Plan) -> list[Row]:
    """Raises ServiceFailed or httpx.HTTPError where a gateway does not serve."""
    tenants = {
        AMPLE: {"requests_per_minute": 10**6, "tokens_per_minute": 10**9, "max_concurrency": 10_000},
        LIMITED: {"requests_per_minute": plan.limited_per_minute},
    }
    async with stand.gateways(1, tenants, processes=PROCESSES, lease_ttl_s=plan.lease_ttl_s) as [gateway]:
        course = await _course(stand, plan, gateway)
        leases = await stand.leases_left(SETTLE_S)
    log_lines = len(ABOUT_REDIS.findall(gateway.log()))
    return rows(plan, course, leases, log_lines)


async def _course(stand: Stand, plan: Plan, gateway: Gateway) -> Course:
    over = asyncio.Event()
    tokens = round((plan.warm_up_s + plan.before_s + plan.freeze_s + plan.after_s / 2) / INTERVAL_S)
    plain, streamed = chat(MODEL, 1, "plain", stream=False), chat(MODEL, tokens, STREAMED, stream=True)
    of_ample = functools.partial(ask, gateway.url, stand.key(AMPLE))
    of_limited = functools.partial(ask, gateway.url, stand.key(LIMITED))
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(of_ample(streamed)) for _ in range(plan.streams)]
        ample = group.create_task(ask_steadily(plan.per_s, over, lambda: of_ample(plain)))
        limited = group.create_task(ask_steadily(plan.limited_per_s, over, lambda: of_limited(plain)))
        await asyncio.sleep(plan.warm_up_s + plan.before_s)
        frozen_s = time.monotonic()
        with frozen(stand.redis_server.service.process):
            await asyncio.sleep(plan.freeze_s)
        thawed_s = time.monotonic()
        recovered_s = thawed_s + await gateway.reaches("gateway_store_degraded", 0, GIVE_UP_S)
        await asyncio.sleep(plan.after_s)
        over.set()
    return Course(
        frozen_s,
        thawed_s,
        recovered_s,
        ample.result(),
        limited.result(),
        [stream.result() for stream in streams],
    )


def rows(plan: Plan, course: Course, leases: int, log_lines: int) -> list[Row]:
    """leases: left at the end. log_lines: of all processes."""
    return [
        *_of_waits(plan, course),
        *_of_limits(plan, course),
        Row("streams across the freeze, whole", _served(course.streams), "", plan.streams, plan.streams),
        Row("from the thaw to no process degraded", course.recovered_s - course.thawed_s, "s", RECOVERY_S),
        Row("leases left in Redis", leases, "", 0),
        Row("log lines about Redis, per process", log_lines / PROCESSES, "", LOG_LINES),
    ]


def _of_waits(plan: Plan, course: Course) -> list[Row]:
    before = course.quiet(course.ample, course.frozen_s - plan.before_s)
    during = course.struck(course.ample)
    before_ms, during_ms = (max(each.took_s for each in of) * 1000 for of in (before, during))
    local = sum(each.headers.get("x-gateway-degraded") == "local" for each in during)
    return [
        Row("longest request before", before_ms, "ms"),
        Row("longest request in the freeze", during_ms, "ms"),
        Row("longer by", during_ms - before_ms, "ms", WAIT_LIMIT_S * 1000),
        Row("ample tenant in the freeze, answered 200", _served(during)),
        Row("of these by each process's own limits", local, "", None, 1),
        Row("ample tenant, answered otherwise at any time", _unserved(course.ample), "", 0),
    ]


def _of_limits(plan: Plan, course: Course) -> list[Row]:
    """What is measured of the tenant that asks for more than it may. Raises ServiceFailed."""
    left = _remaining(max(_told(course, until_s=course.frozen_s), key=lambda each: each.ended_s))
    after = min(_told(course, since_s=course.recovered_s), key=lambda each: each.begun_s)
    granted = [each for each in course.limited if each.status == 200 and each.ended_s >= course.frozen_s]
    spent = sum(each.ended_s < after.begun_s for each in granted)
    per_s = plan.limited_per_minute / 60

    def due(until_s: float) -> float:
        """What the limit grants from the freeze on."""
        return left + per_s * (until_s - course.frozen_s) + 1  # headers round down

    share = SHARE * due(course.thawed_s) + PROCESSES  # each may round to the next request
    end_s = max(each.ended_s for each in course.limited)
    odd = sum(each.status not in (200, 429) for each in course.limited)
    return [
        Row("limited tenant, left before the freeze", left),
        Row("limited tenant, granted in the freeze", len(course.struck(granted)), "", share, 1),
        Row("limited tenant, left after the recovery", _remaining(after), "", due(after.ended_s) - spent),
        Row("limited tenant, granted from the freeze on", len(granted), "", due(end_s)),
        Row("limited tenant, neither granted nor 429", odd, "", 0),
    ]


def _told(course: Course, since_s: float = 0.0, until_s: float = math.inf) -> list[Answer]:
    """What told the limited tenant in that time how much is left. Raises ServiceFailed if nothing did."""
    found = [
        each
        for each in course.limited
        if each.begun_s >= since_s and each.ended_s < until_s and REMAINING in each.headers
    ]
    if not found:
        raise ServiceFailed("no answer told the limited tenant what is left of its limit")
    return found


def _remaining(answer: Answer) -> int:
    return int(answer.headers[REMAINING])


def _served(answers: Sequence[Answer]) -> int:
    return sum(each.is_served for each in answers)


def _unserved(answers: Sequence[Answer]) -> int:
    return len(answers) - _served(answers)

"""What is measured of limits in Redis, how, and what is it held to?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.limits import stores
from benchmarks.limits.load import Arrivals, Cost, arrive, saturate
from benchmarks.limits.server import RedisServer
from benchmarks.targets import Row
from gateway.limits import LimitStore

WARM_UP_S = 0.5

Round = dict[str, float]  # figures by name


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of all measurements."""

    callers: int  # at saturation
    tenants: int  # of whom the callers and requests are
    per_s: int  # requests of a busy process
    seconds: float  # of each load
    rounds: int  # in each of which both stores get every load

    @property
    def duration_s(self) -> float:
        """Of all five loads in all rounds, and of warming up."""
        return 5 * self.rounds * self.seconds + 2 * WARM_UP_S


async def measure(plan: Plan, server: RedisServer) -> list[Round]:
    """All figures of all rounds. Raises StoreUnavailable or LimitReached if a store did not do its work."""
    calls_s: list[float] = []
    async with stores.in_redis(server.url, calls_s.append) as shared:
        stand = _Stand(plan, server, stores.in_memory(), shared, calls_s)
        for store in (stand.memory, shared):
            await stand.saturate(store, WARM_UP_S)
        rounds = [await stand.saturated() for _ in range(plan.rounds)]
        quarter_per_s = median(each["saturated_pairs_per_s"] for each in rounds) / 4
        return [each | await stand.visited(quarter_per_s) for each in rounds]


class _Stand:
    """The two stores side by side; each round gives one the same load as the other."""

    def __init__(
        self, plan: Plan, server: RedisServer, memory: LimitStore, shared: LimitStore, calls_s: list[float]
    ) -> None:
        self.memory = memory
        self._plan = plan
        self._server = server
        self._shared = shared
        self._calls_s = calls_s
        self._tenants = stores.tenants(plan.tenants)

    async def saturate(self, store: LimitStore, seconds: float) -> Cost:
        return await saturate(store, self._tenants, self._plan.callers, seconds)

    async def saturated(self) -> Round:
        """As fast as it goes."""
        alone = await self.saturate(self.memory, self._plan.seconds)
        self._calls_s.clear()
        server_began_s = self._server.cpu_s()
        shared = await self.saturate(self._shared, self._plan.seconds)
        server_cpu_s = self._server.cpu_s() - server_began_s
        return {
            "saturated_pairs_per_s": shared.pairs_per_s,
            "saturated_pairs_per_call": shared.pairs / len(self._calls_s),
            "saturated_memory_us": alone.cpu_us,
            "saturated_redis_us": shared.cpu_us,
            "saturated_added_us": shared.cpu_us - alone.cpu_us,
            "saturated_server_us": server_cpu_s / shared.pairs * 1e6,
        }

    async def visited(self, quarter_per_s: float) -> Round:
        """By requests that come when they come."""
        alone = await self._arrive(self.memory, self._plan.per_s)
        busy = await self._arrive(self._shared, self._plan.per_s)
        quarter = await self._arrive(self._shared, quarter_per_s)
        return {
            "busy_added_us": busy.cost.cpu_us - alone.cost.cpu_us,
            "busy_p50_ms": busy.p50_ms,
            "busy_p99_ms": busy.p99_ms,
            "quarter_per_s": quarter.cost.pairs_per_s,
            "quarter_p50_ms": quarter.p50_ms,
            "quarter_p99_ms": quarter.p99_ms,
        }

    async def _arrive(self, store: LimitStore, per_s: float) -> Arrivals:
        return await arrive(store, self._tenants, per_s, self._plan.seconds)


def rows(plan: Plan, rounds: Sequence[Mapping[str, float]]) -> list[Row]:
    """The medians, held to the targets."""
    of = {name: median(each[name] for each in rounds) for name in rounds[0]}
    top, busy = f"{plan.callers} callers", f"{plan.per_s}/s"
    quarter = f"a quarter, {of['quarter_per_s']:.0f}/s"
    return [
        Row(f"{top}: pairs", of["saturated_pairs_per_s"], "/s", at_least=4000),
        Row(f"{top}: pairs that share a call", of["saturated_pairs_per_call"], ""),
        Row(f"{top}: CPU of a pair, in memory", of["saturated_memory_us"], "µs"),
        Row(f"{top}: CPU of a pair, in Redis", of["saturated_redis_us"], "µs"),
        Row(f"{top}: CPU of a pair, added by Redis", of["saturated_added_us"], "µs", at_most=40),
        Row(f"{top}: CPU of a pair, of the Redis server", of["saturated_server_us"], "µs"),
        Row(f"{busy}: CPU of a pair, added by Redis", of["busy_added_us"], "µs", at_most=40),
        Row(f"{busy}: wait for an admission, p50", of["busy_p50_ms"], "ms"),
        Row(f"{busy}: wait for an admission, p99", of["busy_p99_ms"], "ms"),
        Row(f"{quarter}: wait for an admission, p50", of["quarter_p50_ms"], "ms"),
        Row(f"{quarter}: wait for an admission, p99", of["quarter_p99_ms"], "ms", at_most=2),
    ]

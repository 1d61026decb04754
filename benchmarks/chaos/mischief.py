"""What goes wrong, when, and to whom? At random, but from a seed; all of it is noted down."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from benchmarks.chaos.plan import OPEN, REPLICAS, WORKERS, Plan
from benchmarks.chaos.stand import Stand
from benchmarks.faults import Ending, FaultProxy, Way

FIRST_S = 1.0  # until something goes wrong
CUT_BYTES = 2000  # at most, until a connection is cut off
LONGEST_STALL_S = 5.0
REDIS = "redis"
# Of each kind, how long it is on average until the next.
EVERY_S = {
    "gateway process killed": 45,
    "replica restarted": 600,
    "configuration reloaded": 40,
    "worker killed": 60,
    "worker stopped": 40,
    "worker drained": 60,
    "connections reset": 15,
    "stall": 25,
    "stall of answers": 25,
    "half-close towards a worker": 25,
    "half-close towards the gateways": 25,
    "cut": 12,
    "cut by reset": 12,
    "drip": 30,
    "latency": 30,
    "connections refused": 40,
    "connections never answered": 50,
    "redis frozen": 40,
    "redis restarted": 150,
}


class Due(NamedTuple):
    """A fault that is to come. at_s: after the beginning."""

    at_s: float
    kind: str
    seed: int


@dataclass(slots=True)
class Mishap:
    """One that came. Times are those of `time.time`. whom: a worker, a replica's number, or REDIS."""

    kind: str
    whom: str
    at: float
    until: float = 0.0
    detail: str = ""


def schedule(plan: Plan) -> list[Due]:
    """Each kind at least once."""
    rng = random.Random(plan.seed)
    last_s = plan.mischief_s
    return sorted(
        Due(rng.uniform(FIRST_S, last_s), kind, rng.getrandbits(32))
        for kind, every_s in EVERY_S.items()
        for _ in range(max(1, round(plan.seconds / every_s)))
    )


class Mischief:
    """Makes it so. Two faults of one part wait for each other."""

    def __init__(self, at: Stand, plan: Plan) -> None:
        self.mishaps: list[Mishap] = []
        self._at = at
        self._plan = plan
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._file = at.file.read_text(encoding="utf-8")
        self._reloads = 0
        self._do: Mapping[str, Callable[[str, random.Random], Awaitable[None]]] = {
            "gateway process killed": self._kill_process,
            "replica restarted": self._restart_replica,
            "configuration reloaded": self._reload,
            "worker killed": self._kill_worker,
            "worker stopped": self._stop_worker,
            "worker drained": self._drain_worker,
            "redis frozen": self._freeze_redis,
            "redis restarted": self._restart_redis,
        }

    async def run(self) -> None:
        """All that is due. Raises ServiceFailed in a group."""
        async with asyncio.TaskGroup() as group:
            for due in schedule(self._plan):
                group.create_task(self._when_due(due))

    async def _when_due(self, due: Due) -> None:
        await asyncio.sleep(due.at_s)
        await self.wreak(due.kind, due.seed)

    async def wreak(self, kind: str, seed: int) -> None:
        """One fault, from its beginning to its end. Raises ServiceFailed."""
        await self._do.get(kind, self._disturb)(kind, random.Random(seed))

    @asynccontextmanager
    async def _noted(self, kind: str, whom: str, *parts: str) -> AsyncIterator[Mishap]:
        """For as long as the block lasts. parts: that nothing else may befall meanwhile."""
        async with AsyncExitStack() as stack:
            for part in sorted(parts):
                await stack.enter_async_context(self._locks[part])
            mishap = Mishap(kind, whom, time.time())
            self.mishaps.append(mishap)
            try:
                yield mishap
            finally:
                mishap.until = mishap.until or time.time()

    async def _kill_process(self, kind: str, rng: random.Random) -> None:
        number = rng.randrange(REPLICAS)
        program = self._at.replicas[number].program
        async with self._noted(kind, str(number), f"replica {number}") as mishap:
            if children := program.children():
                victim = rng.choice(children)
                mishap.detail = f"pid {victim}"
                os.kill(victim, signal.SIGKILL)

    async def _restart_replica(self, kind: str, rng: random.Random) -> None:
        """The last one; the first is asked to drain workers. Redis stays well until all know of it."""
        number = REPLICAS - 1
        replica = self._at.replicas[number]
        async with self._noted(kind, str(number), f"replica {number}", REDIS) as mishap:
            await asyncio.sleep(self._plan.lease_ttl_s / 3)  # as before
            mishap.at = time.time()
            status = await replica.program.end(signal.SIGTERM)
            mishap.detail = f"exit status {status}"
            replica.program.start()
            await replica.ready()
            mishap.until = time.time()
            await asyncio.sleep(self._plan.lease_ttl_s / 3)

    async def _reload(self, kind: str, rng: random.Random) -> None:
        async with self._noted(kind, "all", "file", *(f"replica {number}" for number in range(REPLICAS))):
            self._reloads += 1
            # A tenant's weight changes, and back: no answer may tell.
            marked = self._file.replace(
                f'id = "{OPEN}"\n', f'id = "{OPEN}"\nweight = 2.0\n', self._reloads % 2
            )
            self._at.file.write_text(f"# reload {self._reloads}\n{marked}", encoding="utf-8")
            for replica in self._at.replicas:
                replica.program.tell(signal.SIGHUP)

    async def _kill_worker(self, kind: str, rng: random.Random) -> None:
        name = _one_of(rng)
        worker = self._at.workers[name]
        async with self._noted(kind, name, name):
            await worker.end(signal.SIGKILL)
            await asyncio.sleep(rng.uniform(0.5, 0.8 * self._longest_s))
            worker.start()

    async def _stop_worker(self, kind: str, rng: random.Random) -> None:
        name = _one_of(rng)
        async with self._noted(kind, name, name):
            await self._at.workers[name].freeze(rng.uniform(*self._plan.freeze_s))

    async def _drain_worker(self, kind: str, rng: random.Random) -> None:
        name = _one_of(rng)
        async with self._noted(kind, name, "drain") as mishap:
            try:
                mishap.detail = f"status {await self._at.drain(name, back=False)}"
                mishap.at = time.time()
                await asyncio.sleep(rng.uniform(1, self._longest_s))
                mishap.until = time.time()  # before it is told that this is over
            except httpx.HTTPError as error:
                mishap.detail = repr(error)
            await self._resume(name)

    async def _resume(self, name: str) -> None:
        """Until it has been taken note of: Redis may be away, or the process killed that was asked."""
        while True:
            try:
                if await self._at.drain(name, back=True) == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.2)

    async def _freeze_redis(self, kind: str, rng: random.Random) -> None:
        async with self._noted(kind, REDIS, REDIS):
            await self._at.redis.freeze(rng.uniform(*self._plan.freeze_s))

    async def _restart_redis(self, kind: str, rng: random.Random) -> None:
        async with self._noted(kind, REDIS, REDIS):
            await self._at.redis.end(signal.SIGTERM)
            await asyncio.sleep(rng.uniform(0, 1))
            await self._at.start_redis()

    @property
    def _longest_s(self) -> float:
        return min(LONGEST_STALL_S, self._plan.seconds / 4)

    async def _disturb(self, kind: str, rng: random.Random) -> None:
        """The network between the gateways and a worker."""
        name = _one_of(rng)
        proxy = self._at.proxies[name]
        for_s = rng.uniform(0.3, self._longest_s)
        async with self._noted(kind, name, f"network of {name}") as mishap:
            match kind:
                case "connections reset":
                    await proxy.reset()
                case "half-close towards a worker":
                    proxy.half_close(proxy.up)
                case "half-close towards the gateways":
                    proxy.half_close(proxy.down)
                case "cut" | "cut by reset":
                    way = rng.choice((proxy.up, proxy.down))
                    after = rng.randrange(CUT_BYTES)
                    way.cut_after(after, Ending.RESET if kind == "cut by reset" else Ending.FIN)
                    mishap.detail = f"after {after} bytes"
                case _:
                    await _disturb_for(kind, proxy, for_s)


async def _disturb_for(kind: str, proxy: FaultProxy, for_s: float) -> None:
    """What lasts."""
    ways: tuple[Way, ...] = (proxy.up, proxy.down)
    match kind:
        case "stall":
            proxy.stall()
        case "stall of answers":
            proxy.down.stall()
        case "drip":
            proxy.down.drip_s = 0.0
        case "latency":
            for way in ways:
                way.latency_s = 0.1
        case "connections refused":
            proxy.refuse()
        case _:
            proxy.is_mute = True
    try:
        await asyncio.sleep(for_s)
    finally:
        proxy.resume()
        proxy.is_mute = False
        for way in ways:
            way.drip_s, way.latency_s = None, 0.0
        if kind == "connections refused":
            await proxy.admit()


def _one_of(rng: random.Random) -> str:
    return f"w{rng.randrange(WORKERS)}"

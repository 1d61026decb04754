"""Who is there? Two replicas of the gateway, three workers behind a fault proxy each, and one Redis."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from redis import RedisError
from redis.asyncio import Redis

from benchmarks.chaos.configuring import Sections, configuration, sha256
from benchmarks.chaos.plan import ADMIN, PROCESSES, REPLICAS, TENANTS, WORKERS, Plan
from benchmarks.chaos.programs import POLL_S, START_LIMIT_S, Program
from benchmarks.faults import FaultProxy
from benchmarks.footprint.rig import WITH_US, serve, total_of
from benchmarks.routing.workers import free_ports
from deploy.services import ServiceFailed

AT_ONCE = 8  # requests of a worker: few enough that there is a queue
READ_S = 5.0  # for an answer of the admin port, or of Redis


@dataclass(frozen=True, slots=True)
class Replica:
    """A gateway: a parent and its processes."""

    program: Program
    port: int
    admin_port: int

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    async def ready(self) -> None:
        """Wait until it serves. Raises ServiceFailed."""
        await _until(self._is_ready, self.program)

    async def _is_ready(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=READ_S) as client:
                return (await client.get(f"http://127.0.0.1:{self.port}/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def gauge(self, name: str) -> float:
        """A metric's sum over all processes. Raises httpx.HTTPError."""
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=READ_S) as client:
            return total_of((await client.get(f"{self.admin_url}/metrics")).text, name)


@dataclass(frozen=True, slots=True)
class Stand:
    """All of it. keys: by tenant, and that of the admin API."""

    redis: Program
    redis_port: int
    workers: Mapping[str, Program]
    proxies: Mapping[str, FaultProxy]  # by worker
    replicas: list[Replica]
    keys: Mapping[str, str]
    file: Path  # of the gateways
    visits: Path  # the log of all workers

    async def start_redis(self) -> None:
        """Raises ServiceFailed."""
        self.redis.start()
        await _until(self._redis_answers, self.redis)

    async def _redis_answers(self) -> bool:
        async with self.client() as client:
            try:
                return bool(await client.ping())
            except RedisError:
                return False

    def client(self) -> "Redis":
        return Redis(port=self.redis_port, decode_responses=True, socket_timeout=READ_S)

    async def leases(self) -> int:
        """Slots in use, as Redis has it."""
        async with self.client() as client:
            return sum([await client.zcard(name) async for name in client.scan_iter("gateway:*:leases")])

    async def usage(self) -> dict[str, list[int]]:
        """What Redis has summed for each tenant: requests, and tokens of prompts and answers."""
        found = {tenant: [0, 0] for tenant in TENANTS}
        async with self.client() as client:
            days = [await client.hgetall(day) async for day in client.scan_iter("gateway:usage:20*")]
        for name, amount in ((name, amount) for sums in days for name, amount in sums.items()):
            tenant, _, _, _, measure = json.loads(name)
            if measure != "cached":
                found[tenant][measure != "requests"] += int(amount)
        return found

    async def drain(self, worker: str, *, back: bool) -> int:
        """Have a worker get nothing new, or again. Returns the status. Raises httpx.HTTPError."""
        headers = {"authorization": f"Bearer {self.keys[ADMIN]}", "content-type": "application/json"}
        path = f"/admin/workers/{worker}/{'resume' if back else 'drain'}"
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=READ_S) as client:
            return (await client.post(self.replicas[0].admin_url + path, headers=headers)).status_code

    def programs(self) -> Iterator[Program]:
        yield from (replica.program for replica in self.replicas)
        yield from self.workers.values()
        yield self.redis


async def _until(holds: Callable[[], Awaitable[bool]], program: Program) -> None:
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while not await holds():
                program.service.check()
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise ServiceFailed(f"{program.name} is not ready after {START_LIMIT_S:g} s") from error


@asynccontextmanager
async def stand(plan: Plan, folder: Path) -> AsyncIterator[Stand]:
    """All of it, ready to serve; it ends with the block. Raises ServiceFailed."""
    names = [f"w{number}" for number in range(WORKERS)]
    redis_port, *ports = free_ports(1 + WORKERS + 2 * REPLICAS)
    of_workers = dict(zip(names, ports, strict=False))
    of_replicas = [ports[WORKERS + 2 * number :][:2] for number in range(REPLICAS)]
    file, visits = folder / "gateway.toml", folder / "visits.jsonl"
    visits.touch()
    async with AsyncExitStack() as stack:
        at = Stand(
            Program("redis", _redis(redis_port, folder), folder),
            redis_port,
            {
                name: Program(name, _worker(name, port, plan.interval_s, visits), folder)
                for name, port in of_workers.items()
            },
            {name: await stack.enter_async_context(FaultProxy(port)) for name, port in of_workers.items()},
            [_replica(number, of_replicas[number], file, folder) for number in range(REPLICAS)],
            {name: f"sk-{secrets.token_urlsafe(32)}" for name in (*TENANTS, ADMIN)},
            file,
            visits,
        )
        urls = {name: f"http://127.0.0.1:{proxy.port}" for name, proxy in at.proxies.items()}
        file.write_text(configuration(_sections(plan, at), urls, AT_ONCE, at.keys), encoding="utf-8")
        for program in at.programs():
            stack.callback(program.close)
        await at.start_redis()
        for program in (*at.workers.values(), *(replica.program for replica in at.replicas)):
            program.start()
        for replica in at.replicas:
            await replica.ready()
        yield at


def _redis(port: int, folder: Path) -> list[str]:
    """What it has said to have done, it finds again when it is started anew."""
    place = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder))
    kept = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
    return ["setpriv", "--pdeathsig", "TERM", "--", "redis-server", *place, *kept]


def _worker(name: str, port: int, interval_s: float, visits: Path) -> list[str]:
    options = ("--name", name, "--port", str(port), "--interval-s", str(interval_s), "--visits", str(visits))
    return [*WITH_US, "-m", "benchmarks.chaos.worker", *options]


def _replica(number: int, ports: list[int], file: Path, folder: Path) -> Replica:
    port, admin_port = ports
    environ = {"GATEWAY_SERVER_PORT": str(port), "GATEWAY_SERVER_ADMIN_PORT": str(admin_port)}
    return Replica(Program(f"gateway {number}", serve(file), folder, environ), port, admin_port)


def _sections(plan: Plan, at: Stand) -> Sections:
    """What is not the default in the file of both replicas. Their ports come from their environment."""
    own: Sections = {
        "server": {"host": "127.0.0.1", "processes": PROCESSES, "drain_s": plan.drain_s},
        "store": {"url": f"redis://127.0.0.1:{at.redis_port}/0", "on_failure": "local"},
        "limits": {"lease_ttl_s": plan.lease_ttl_s},
        "admin": {"key_sha256": sha256(at.keys[ADMIN])},
    }
    return {name: {**own.get(name, {}), **plan.rules.get(name, {})} for name in (*own, *plan.rules)}

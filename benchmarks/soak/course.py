"""How does a soak go? One gateway of two processes, Redis and two simulated workers, called all the time."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.calls import Call
from benchmarks.chaos.configuring import configuration
from benchmarks.chaos.load import Load
from benchmarks.chaos.plan import TENANTS
from benchmarks.chaos.plan import Plan as Calling
from benchmarks.chaos.script import MODEL
from benchmarks.chaos.sdk import SdkCaller
from benchmarks.footprint.rig import SERVING, START_LIMIT_S, announced, serve
from benchmarks.limits.server import RedisServer, running_redis
from benchmarks.routing.workers import Engines, running_workers
from benchmarks.soak.looks import look
from deploy.services import Service, running, wait_ready

PROCESSES = 2
WORKERS = 2
AT_ONCE = 8  # requests of a worker: few enough that some wait
STOP_S = 15.0
SPARE_S = 180.0  # for programs to start, and the last callers to have patience


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    seconds: float = 7200.0
    every_s: float = 10.0  # between two looks
    per_s: float = 20.0  # calls, of which some leave, and some are wrong on purpose
    burst: int = 40  # calls at once, now and then
    burst_every_s: float = 30.0
    seed: int = 1


@dataclass(slots=True)
class Course:
    """What was seen. at_s: of each look, since the beginning. outcomes: of all calls."""

    redis_version: str
    at_s: list[float] = field(default_factory=list)
    looks: list[dict[str, float]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def note(self, call: Call) -> None:
        self.outcomes[f"{call.by}: {call.outcome}" if call.is_hostile else call.outcome] += 1


def course(plan: Plan, folder: Path, run: Callable[["Course", "Stage"], None]) -> Course:
    """Start all, run it, end all. Raises ServiceFailed, or OSError without setpriv."""
    keys = {tenant: f"sk-{secrets.token_urlsafe(32)}" for tenant in TENANTS}
    with running_redis() as server, running_workers(Engines(WORKERS, model=MODEL), folder) as workers:
        file = folder / "gateway.toml"
        urls = {f"w{number}": url for number, url in enumerate(workers.urls)}
        file.write_text(configuration(_sections(server), urls, AT_ONCE, keys), encoding="utf-8")
        with running("the gateway", serve(file), folder / "gateway.log", STOP_S) as gateway:
            public, _ = announced(gateway, SERVING)
            wait_ready(f"{public}/ready", [gateway], START_LIMIT_S)
            seen = Course(server.version())
            run(seen, Stage(plan, gateway, server, keys, int(public.rpartition(":")[2])))
            return seen


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs. keys: by tenant. port: the gateway's public one."""

    plan: Plan
    gateway: Service
    redis_server: RedisServer
    keys: Mapping[str, str]
    port: int


def _sections(server: RedisServer) -> dict[str, dict[str, object]]:
    return {
        "server": {
            "host": "127.0.0.1",
            "port": 0,
            "admin_port": 0,
            "processes": PROCESSES,
            "drain_s": 5,
            "header_timeout_s": 5,
            "body_timeout_s": 5,
        },
        "store": {"url": server.url},
        "admission": {"max_wait_s": 8},
    }


async def call_and_look(seen: Course, stage: Stage) -> None:
    """For as long as the plan says. Raises ServiceFailed, LookupError or redis.RedisError."""
    plan = stage.plan
    calling = Calling(
        seconds=plan.seconds,
        per_s=plan.per_s,
        burst=plan.burst,
        burst_every_s=plan.burst_every_s,
        seed=plan.seed,
    )
    ports = {0: stage.port}
    async with (
        asyncio.timeout(plan.seconds + SPARE_S),
        SdkCaller(stage.keys, ports) as by_sdk,
        asyncio.TaskGroup() as group,
    ):
        load = group.create_task(Load(calling, stage.keys, ports, by_sdk, seen.note).run())
        loop = asyncio.get_running_loop()
        began = due = loop.time()
        while not load.done() and due < began + plan.seconds:
            due += plan.every_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            _look(seen, stage, loop.time() - began)


def _look(seen: Course, stage: Stage, at_s: float) -> None:
    stage.gateway.check()
    seen.looks.append(look(stage.gateway.process.pid, stage.redis_server.port))
    seen.at_s.append(at_s)

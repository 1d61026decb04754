"""How does a run go? All is started, called and disturbed; then it must be as if nothing had been."""

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from redis import RedisError

from benchmarks.chaos import visits
from benchmarks.chaos.calls import Call
from benchmarks.chaos.evidence import Evidence, lines_of
from benchmarks.chaos.load import Load
from benchmarks.chaos.mischief import Mischief
from benchmarks.chaos.plan import TENANTS, Plan
from benchmarks.chaos.sdk import SdkCaller
from benchmarks.chaos.stand import Stand, stand
from deploy.services import ServiceFailed

GAUGES = ("gateway_in_flight", "gateway_queue_depth", "gateway_store_degraded")
SETTLE_S = 10.0  # besides the time of a lease
POLL_S = 0.1
SPARE_S = 300.0  # for programs to start and end on a busy machine, and callers to have patience


async def run(plan: Plan, folder: Path) -> tuple[Evidence, str]:
    """What is known afterwards, and the version of Redis. All logs are left in `folder`.

    Raises ServiceFailed where something did not run as it should that is no part of the question.
    """
    try:
        async with asyncio.timeout(plan.seconds + SPARE_S), stand(plan, folder) as at:
            return await _course(plan, at, folder)
    except TimeoutError as error:
        raise ServiceFailed(f"took longer than {plan.seconds + SPARE_S:.0f} s") from error


async def _course(plan: Plan, at: Stand, folder: Path) -> tuple[Evidence, str]:
    keys = {tenant: at.keys[tenant] for tenant in TENANTS}
    ports = {number: replica.port for number, replica in enumerate(at.replicas)}
    mischief = Mischief(at, plan)
    calls: list[Call] = []
    async with SdkCaller(keys, ports) as by_sdk, asyncio.TaskGroup() as group:
        load = Load(plan, keys, ports, by_sdk, calls.append)
        group.create_task(load.run())
        group.create_task(mischief.run())
    await load.probe()
    leases = await _settled(at.leases, plan.lease_ttl_s + SETTLE_S)
    gauges = {
        f"{name} of replica {number}": await _settled(lambda r=replica, n=name: r.gauge(n), SETTLE_S)  # type: ignore[misc]
        for number, replica in enumerate(at.replicas)
        for name in GAUGES
    }
    statuses = [await replica.program.end(signal.SIGTERM) for replica in at.replicas]
    said = [replica.program.said() for replica in at.replicas]
    async with at.client() as client:
        version = (await client.info("server"))["redis_version"]
    found = Evidence(
        plan,
        calls,
        visits.read(at.visits.read_text(encoding="utf-8").splitlines()),
        [line for number, text in enumerate(said) for line in lines_of(number, text)],
        mischief.mishaps,
        int(leases),
        gauges,
        await at.usage(),
        statuses,
        "\n".join(line for text in said for line in text.splitlines() if not line.startswith("{")),
    )
    _keep(found, folder)
    return found, version


async def _settled(value: Callable[[], Coroutine[Any, Any, float]], limit_s: float) -> float:
    """Wait until it is 0, `limit_s` at most. Returns what it is then."""
    found = float("nan")
    loop = asyncio.get_running_loop()
    ends = loop.time() + limit_s
    while found != 0 and loop.time() < ends:
        try:
            found = await value()
        except (httpx.HTTPError, RedisError, LookupError):
            found = float("nan")
        await asyncio.sleep(POLL_S)
    return found


def _keep(found: Evidence, folder: Path) -> None:
    """Of callers and of what went wrong there are no logs yet."""
    for name, each in (("calls", found.calls), ("mishaps", found.mishaps)):
        lines = [json.dumps(asdict(one), default=repr) for one in each]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

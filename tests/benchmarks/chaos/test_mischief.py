"""Does each kind of fault come, befall whom it names, and leave all as it was?"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos.mischief import EVERY_S, Mischief, schedule
from benchmarks.chaos.plan import Plan, fast
from benchmarks.chaos.programs import Program
from benchmarks.chaos.stand import Replica, Stand
from benchmarks.faults import FaultProxy
from deploy.services import ServiceFailed

GUARD_S = 30.0
SLEEPS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.signal(signal.SIGHUP, lambda *_: os.write(1, b"reload\\n"))
until_the_end, held = os.pipe()
if not os.fork():
    os.close(held)
    os.read(until_the_end, 1)
    os._exit(0)
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
SLEEPER = (sys.executable, "-c", SLEEPS)  # it has a child


def test_the_same_seed_plans_the_same_and_each_kind_comes() -> None:
    plan = Plan(seed=5)
    planned = schedule(plan)
    assert planned == schedule(plan) != schedule(replace(plan, seed=6))
    times = Counter(due.kind for due in planned)
    assert times.keys() == EVERY_S.keys()
    assert times["cut"] == 50
    assert all(0 < due.at_s <= plan.mischief_s for due in planned)
    assert Counter(due.kind for due in schedule(fast(1))) == Counter(EVERY_S.keys())


@asynccontextmanager
async def program(folder: Path, *command: str) -> AsyncIterator[Program]:
    made = Program("a sleeper", command or SLEEPER, folder)
    made.start()
    try:
        async with asyncio.timeout(GUARD_S):
            while not made.said():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            yield made
    finally:
        made.close()


async def test_a_program_has_a_log_for_each_of_its_lives(tmp_path: Path) -> None:
    async with program(tmp_path) as sleeper:
        assert await sleeper.end(signal.SIGKILL) == -signal.SIGKILL
        sleeper.start()
        while sleeper.said() != "up\nup\n":  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        assert await sleeper.end(signal.SIGTERM) == 7
        assert [log.name for log in sleeper.logs] == ["a-sleeper-0.log", "a-sleeper-1.log"]


async def test_a_program_that_does_not_end_is_told_of(tmp_path: Path) -> None:
    async with program(tmp_path, "sh", "-c", "trap '' TERM; echo up; exec sleep 60") as sleeper:
        with pytest.raises(ServiceFailed, match=r"a sleeper did not end within 0\.1 s"):
            await sleeper.end(signal.SIGTERM, 0.1)
        sleeper.tell(signal.SIGKILL)


async def test_a_program_that_is_frozen_goes_on_afterwards(tmp_path: Path) -> None:
    async with program(tmp_path) as sleeper:
        freezing = asyncio.create_task(sleeper.freeze(0.2))
        while _state(sleeper.pid) != "T":  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        await freezing
        assert _state(sleeper.pid) != "T"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@asynccontextmanager
async def disturbed(folder: Path) -> AsyncIterator[tuple[Mischief, Stand]]:
    """Programs that do nothing, with a proxy each."""
    file = folder / "gateway.toml"
    file.write_text('[[tenants]]\nid = "open"\n')
    names = [f"w{number}" for number in range(3)]
    programs = [Program(f"program {number}", SLEEPER, folder) for number in range(6)]
    async with asyncio.timeout(GUARD_S), FaultProxy(1) as proxy:
        at = Stand(
            programs[0],
            0,
            dict(zip(names, programs[1:4], strict=True)),
            dict.fromkeys(names, proxy),
            [Replica(each, 0, 0) for each in programs[4:]],
            {},
            file,
            file,
        )
        for each in at.programs():
            each.start()
        try:
            while not all(each.said() for each in programs):  # noqa: ASYNC110 - they tell nobody
                await asyncio.sleep(0.01)
            yield Mischief(at, fast(1)), at
        finally:
            for each in at.programs():
                each.tell(signal.SIGKILL)
                each.close()


NETWORK = [kind for kind in EVERY_S if kind.split()[0] not in ("gateway", "replica", "redis", "worker")]


@pytest.mark.parametrize("kind", [kind for kind in NETWORK if kind != "configuration reloaded"])
async def test_the_network_is_as_before_when_a_disturbance_is_over(kind: str, tmp_path: Path) -> None:
    async with disturbed(tmp_path) as (mischief, at):
        await mischief.wreak(kind, 3)
        [mishap] = mischief.mishaps
        assert (mishap.kind, mishap.whom in at.workers) == (kind, True)
        assert mishap.until >= mishap.at
        proxy = at.proxies["w0"]
        assert not proxy.is_mute
        assert (proxy.up.drip_s, proxy.up.latency_s, proxy.down.drip_s, proxy.down.latency_s) == (
            None,
            0,
            None,
            0,
        )
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)  # it takes connections
        writer.close()


async def test_a_worker_that_is_killed_runs_again(tmp_path: Path) -> None:
    async with disturbed(tmp_path) as (mischief, at):
        before = {name: worker.pid for name, worker in at.workers.items()}
        await mischief.wreak("worker killed", 3)
        [mishap] = mischief.mishaps
        changed = [name for name, worker in at.workers.items() if worker.pid != before[name]]
        assert changed == [mishap.whom]
        os.kill(at.workers[mishap.whom].pid, 0)


async def test_a_process_of_a_gateway_is_killed_and_not_its_parent(tmp_path: Path) -> None:
    async with disturbed(tmp_path) as (mischief, at):
        parents = [replica.program for replica in at.replicas]
        while not all(parent.children() for parent in parents):  # noqa: ASYNC110 - the shell forks its sleeps
            await asyncio.sleep(0)
        await mischief.wreak("gateway process killed", 3)
        assert all(parent.service.process.poll() is None for parent in parents)
        assert mischief.mishaps[0].whom in ("0", "1")


async def test_a_reload_changes_the_file_and_the_next_one_changes_it_back(tmp_path: Path) -> None:
    async with disturbed(tmp_path) as (mischief, at):
        await mischief.wreak("configuration reloaded", 3)
        assert 'id = "open"\nweight = 2.0\n' in at.file.read_text()
        await mischief.wreak("configuration reloaded", 3)
        assert "weight" not in at.file.read_text()
        assert at.file.read_text().startswith("# reload 2\n")
        for replica in at.replicas:
            while "reload" not in replica.program.said():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)

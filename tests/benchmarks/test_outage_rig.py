"""Does the rig start what it says, freeze what it shall, and leave nothing behind?"""

import asyncio
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmarks.footprint.streams import chat
from benchmarks.limits.server import RedisServer, running_redis
from benchmarks.outage import rig
from benchmarks.outage.caller import REMAINING, ask
from benchmarks.outage.rig import ABOUT_REDIS, Stand, frozen, stand
from benchmarks.outage.worker import MODEL, CountingWorker
from deploy.services import ServiceFailed
from gateway.configuration import parse
from tests.fakes import FakeWorker, Received, Reply
from tests.vllm_answers import response_head

GUARD_S = 60.0


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def state(pid: int) -> str:
    """As in ps; "" for a process that is gone."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else ""


async def is_in(pid: int, *states: str) -> None:
    """Wait until a process is in one of these states."""
    async with asyncio.timeout(GUARD_S):
        while state(pid) not in states:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_gateways_share_limits_serve_and_end_with_the_block(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    tenants = {"acme": {"requests_per_minute": 5, "max_concurrency": 2}, "globex": {"requests_per_minute": 9}}
    body = chat(MODEL, 1, "hello", stream=False)
    async with stand(redis_server, tmp_path, 0.0) as at:
        async with at.gateways(2, tenants, lease_ttl_s=7) as gateways:
            answers = [await ask(gateway.url, at.key("acme"), body) for gateway in gateways]
            other = await ask(gateways[0].url, at.key("globex"), body)
            pids = [gateway.service.process.pid for gateway in gateways]
            assert await gateways[0].metric("gateway_worker_up") == 1
        settings = parse(tomllib.loads((tmp_path / "gateway.toml").read_text()), {})
    assert [answer.headers[REMAINING] for answer in (*answers, other)] == ["4", "3", "8"]
    assert at.worker.visits.begun("hello") == 3
    assert [state(pid) for pid in pids] == ["", ""]
    assert all('"tenant":"acme"' in gateway.log() for gateway in gateways)
    assert (settings.server.processes, settings.limits.lease_ttl_s) == (1, 7)
    assert [(of.id, of.requests_per_minute, of.max_concurrency) for of in settings.tenants] == [
        ("acme", 5, 2),
        ("globex", 9, None),
    ]


async def test_a_metric_is_waited_for_no_longer_than_allowed() -> None:
    values = iter((2, 1, 0, 5))

    async def metrics(request: Received, reply: Reply) -> None:
        text = f"# TYPE gateway_in_flight gauge\ngateway_in_flight {next(values)}\n".encode()
        await reply.send(response_head(200, {"content-length": str(len(text))}) + text)

    async with FakeWorker(probe=metrics) as admin:
        gateway = rig.Gateway(None, "", admin.url)  # type: ignore[arg-type]
        assert await gateway.reaches("gateway_in_flight", 0, limit_s=GUARD_S) > 0
        assert len(admin.probes) == 3
        await gateway.reaches("gateway_in_flight", 0, limit_s=0)
        assert len(admin.probes) == 4


async def test_leases_are_counted_over_all_tenants_and_waited_for(redis_server: RedisServer) -> None:
    at = Stand(redis_server, CountingWorker(0.0), Path(), "secret")
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        client.zadd("gateway:{a}:leases", {"one": 1e18, "two": 1e18})
        client.zadd("gateway:{b}:leases", {"three": 1e18})
        client.zadd("gateway:processes", {"p": 1e18})
        assert at.leases() == 3
        assert await at.leases_left(limit_s=0) == 3
        waiting = asyncio.create_task(at.leases_left(GUARD_S))
        await asyncio.sleep(0)
        assert not waiting.done()
        client.delete("gateway:{a}:leases", "gateway:{b}:leases", "gateway:processes")
        assert await waiting == 0


async def test_a_gateway_that_ends_at_once_is_told_with_its_own_words(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with stand(redis_server, tmp_path, 0.0) as at:
        with pytest.raises(ServiceFailed, match=r"gateway 0 ended with status 2[\s\S]*no_such_limit"):
            async with at.gateways(1, {"acme": {"no_such_limit": 1}}):
                pass


async def test_a_gateway_that_says_nothing_is_not_waited_for_for_ever(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig, "START_LIMIT_S", 0.0)
    async with stand(redis_server, tmp_path, 0.0) as at:
        with pytest.raises(ServiceFailed, match="gateway 0 did not start within 0 s"):
            async with at.gateways(1, {"acme": {}}):
                pass


async def test_a_frozen_process_goes_on_after_the_block() -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:  # noqa: ASYNC220 - it is as in the rig
        with frozen(sleeper):
            await is_in(sleeper.pid, "T")
        await is_in(sleeper.pid, "S")
        sleeper.kill()


async def test_a_frozen_redis_ends_with_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    freezes = (
        "from benchmarks.limits.server import running_redis\n"
        "from benchmarks.outage.rig import frozen\n"
        "import time\n"
        "with running_redis() as server, frozen(server.service.process):\n"
        "    print(server.service.process.pid, flush=True)\n"
        "    time.sleep(1000)\n"
    )
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        freezes,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # where one that is killed leaves its files
    )
    assert program.stdout is not None
    pid = int(await program.stdout.readline())
    await is_in(pid, "T")
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    await is_in(pid, "", "Z")


def test_only_lines_about_the_store_count_and_no_log_of_requests() -> None:
    log = (
        "t WARNING Redis is away (no answer)\n"
        '{"tenant":"redis","status":200}\n'
        "t INFO worker w0 is up\n"
        "t WARNING usage cannot be added to the store\n"
    )
    assert len(ABOUT_REDIS.findall(log)) == 2

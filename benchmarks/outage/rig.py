"""What fails here? Gateways and a Redis, each a process of its own as users start them, and one worker."""

import asyncio
import hashlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis

from benchmarks.footprint.rig import URL, WITH_US, total_of
from benchmarks.limits.server import RedisServer
from benchmarks.outage.worker import MODEL, CountingWorker
from deploy.services import Service, ServiceFailed, running

START_LIMIT_S = 60.0
STOP_S = 10.0
POLL_S = 0.05
AT_ONCE = 1000  # requests that the worker takes: tenants' limits shall be what is felt
ABOUT_REDIS = re.compile(r"^(?!\{).*(?:redis|store).*$", re.IGNORECASE | re.MULTILINE)
_SERVING = re.compile(rf"serving on {URL}, metrics on {URL}")
_GO_ON_AT_EOF = ("sh", "-c", 'read -r _; kill -CONT "$0"')

Tenants = Mapping[str, Mapping[str, int]]  # limits by their names in the file, by the tenant's id


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway, of one process or several."""

    service: Service
    url: str
    admin_url: str

    async def metric(self, name: str) -> float:
        """Its samples' sum, over all processes."""
        # Plain HTTP has no use for the system's certificates, whose reading takes long.
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            return total_of((await client.get(f"{self.admin_url}/metrics")).text, name)

    async def reaches(self, name: str, value: float, limit_s: float) -> float:
        """Wait until a metric has this value, `limit_s` at most. Returns how long that took, in seconds."""
        began_s = time.monotonic()
        while await self.metric(name) != value and time.monotonic() - began_s < limit_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)  # a metric is told only when it is asked for
        return time.monotonic() - began_s

    def log(self) -> str:
        """What all its processes have said so far."""
        return self.service.log.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Stand:
    """What all gateways of a scenario have in common."""

    redis_server: RedisServer
    worker: CountingWorker
    folder: Path
    secret: str

    def key(self, tenant: str) -> str:
        """With which a tenant calls."""
        return f"sk-{tenant}-{self.secret}"

    @asynccontextmanager
    async def gateways(
        self, count: int, tenants: Tenants, *, processes: int = 1, lease_ttl_s: float = 30
    ) -> AsyncIterator[list[Gateway]]:
        """Start so many, ready to serve; end all with the block. Raises ServiceFailed."""
        file = self.folder / "gateway.toml"
        file.write_text(self._configuration(tenants, processes, lease_ttl_s), encoding="utf-8")
        command = [*WITH_US, "-m", "gateway", "serve", "--config", str(file)]
        async with AsyncExitStack() as stack:
            services = [
                stack.enter_context(running(f"gateway {n}", command, self.folder / f"{n}.log", STOP_S))
                for n in range(count)
            ]
            yield [await _ready(service, processes) for service in services]

    def leases(self) -> int:
        """Slots that are in use, as Redis has it."""
        with redis.Redis(port=self.redis_server.port) as client:
            return sum(int(client.zcard(name)) for name in client.scan_iter("gateway:*:leases"))

    async def leases_left(self, limit_s: float) -> int:
        """Wait until none is left, `limit_s` at most. Returns how many there are then."""
        deadline_s = time.monotonic() + limit_s
        while (left := self.leases()) and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return left

    def _configuration(self, tenants: Tenants, processes: int, lease_ttl_s: float) -> str:
        """The gateways' file. All that is not named keeps its default."""
        sections = [
            f'[server]\nhost = "127.0.0.1"\nport = 0\nadmin_port = 0\ndrain_s = 0\nprocesses = {processes}',
            f'[store]\nurl = "{self.redis_server.url}"\non_failure = "local"',
            f"[limits]\nlease_ttl_s = {lease_ttl_s}",
            f'[[models]]\nname = "{MODEL}"',
            f'[[workers]]\nid = "w0"\nurl = "{self.worker.url}"\nmodel = "{MODEL}"\n'
            f"max_concurrency = {AT_ONCE}",
        ]
        for tenant, limits in tenants.items():
            sha256 = hashlib.sha256(self.key(tenant).encode()).hexdigest()
            sections += [
                "\n".join(
                    [f'[[tenants]]\nid = "{tenant}"', *(f"{n} = {limit}" for n, limit in limits.items())]
                ),
                f'[[keys]]\nid = "{tenant}-1"\ntenant = "{tenant}"\nsha256 = "{sha256}"',
            ]
        return "\n\n".join(sections) + "\n"


@asynccontextmanager
async def stand(redis_server: RedisServer, folder: Path, interval_s: float) -> AsyncIterator[Stand]:
    """Of one scenario. interval_s: between two tokens of the worker."""
    async with CountingWorker(interval_s) as worker:
        yield Stand(redis_server, worker, folder, secrets.token_urlsafe(32))


@contextmanager
def frozen(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process does nothing for as long as the block lasts, or we live, if that is shorter.

    A stopped process does not see that we are gone: somebody must outlive us who has it go on.
    """
    # A session of its own: Ctrl-C is for us alone.
    with subprocess.Popen(
        [*_GO_ON_AT_EOF, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
    ):  # whose end closes the pipe
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)


async def _ready(service: Service, processes: int) -> Gateway:
    """Wait until each of its processes serves and the worker has been found well. Raises ServiceFailed."""
    try:
        async with asyncio.timeout(START_LIMIT_S):
            while len(found := _SERVING.findall(service.log.read_text(errors="replace"))) < processes:
                service.check()
                await asyncio.sleep(POLL_S)
            gateway = Gateway(service, *found[0])
            await gateway.reaches("gateway_worker_up", 1, START_LIMIT_S)
    except TimeoutError as error:
        message = f"{service.name} did not start within {START_LIMIT_S:.0f} s. {service.tail()}"
        raise ServiceFailed(message) from error
    return gateway

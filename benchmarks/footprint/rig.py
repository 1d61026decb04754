"""What is measured? One gateway and its workers, each a process of its own, as users start them."""

import asyncio
import hashlib
import json
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from deploy.services import Service, ServiceFailed, running, wait_ready

START_LIMIT_S = 60.0
STOP_S = 10.0
POLL_S = 0.05
MAX_QUEUED = 100_000  # one tenant makes all the load here, and its share of the queue shall not matter
# The program that follows ends with us, also if we are killed, or interrupted before we know its id.
WITH_US = ("setpriv", "--pdeathsig", "TERM", "--", sys.executable)
URL = r"(http://127\.0\.0\.1:\d+)"
SERVING = f"serving on {URL}, metrics on {URL}"

Sections = Mapping[str, Mapping[str, str | float]]  # settings by their names, by the names of their sections
OWN: Sections = {
    "server": {"host": "127.0.0.1", "port": 0, "admin_port": 0, "drain_s": 0},
    "admission": {"max_queued": MAX_QUEUED},
}


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A fake worker: what it serves, and how long it takes for a token."""

    model: str
    interval_s: float


@dataclass(frozen=True, slots=True)
class Rig:
    """A running gateway whose one tenant has no limits."""

    gateway: Service
    url: str
    admin_url: str
    key: str

    def rss_bytes(self) -> int:
        """The gateway's resident memory, shared pages included."""
        return vm_rss_bytes(Path(f"/proc/{self.gateway.process.pid}/status").read_text(encoding="utf-8"))

    async def total(self, metric: str) -> float:
        """The sum of a metric over its labels."""
        # Plain HTTP has no use for the system's certificates, whose reading takes long.
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            text = (await client.get(f"{self.admin_url}/metrics")).text
        return total_of(text, metric)

    async def reaches(self, metric: str, value: float, limit_s: float) -> float:
        """Wait until a metric has this value, `limit_s` at most. Returns what it has then."""
        deadline_s = time.monotonic() + limit_s
        while (found := await self.total(metric)) != value and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)  # a metric is told only when it is asked for
        return found


def vm_rss_bytes(status: str) -> int:
    """Of the text of /proc/PID/status. Raises LookupError for a process that has ended."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise LookupError("the process holds no memory any more: it has ended")
    return int(found[1]) * 1024  # what the kernel calls kB


def total_of(metrics: str, name: str) -> float:
    """The sum of a metric's samples in the text that Prometheus scrapes; LookupError if there are none."""
    families = text_string_to_metric_families(metrics)
    values = [sample.value for family in families for sample in family.samples if sample.name == name]
    if not values:
        raise LookupError(f"the gateway has no metric {name}")
    return sum(values)


@contextmanager
def running_rig(
    workers: Sequence[WorkerPlan], max_concurrency: int, settings: Sections | None = None
) -> Iterator[Rig]:
    """Start all, ready to serve; end all with the block. Raises ServiceFailed.

    max_concurrency: of each worker. settings: what is not the default in the gateway's file.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="footprint-")))
        urls = stack.enter_context(running_workers(workers, folder))
        key = f"sk-{secrets.token_urlsafe(32)}"
        file = folder / "gateway.toml"
        file.write_text(configuration(urls, max_concurrency, key, settings), encoding="utf-8")
        gateway = stack.enter_context(running("the gateway", serve(file), folder / "gateway.log", STOP_S))
        public, admin = announced(gateway, SERVING)
        wait_ready(f"{public}/ready", [gateway], START_LIMIT_S)
        yield Rig(gateway, public, admin, key)


@contextmanager
def running_workers(plans: Sequence[WorkerPlan], folder: Path) -> Iterator[dict[str, WorkerPlan]]:
    """Start them; their plans by their URLs. They end with the block. Raises ServiceFailed."""
    with ExitStack() as stack:
        urls: dict[str, WorkerPlan] = {}
        for number, plan in enumerate(plans):
            options = ["--model", plan.model, "--interval-s", str(plan.interval_s)]
            command = [*WITH_US, "-m", "benchmarks.footprint.worker", *options]
            log = folder / f"worker-{number}.log"
            worker = stack.enter_context(running(f"worker {number}", command, log, STOP_S))
            [url] = announced(worker, f"listening on {URL}")
            urls[url] = plan
        yield urls


def serve(file: Path) -> list[str]:
    """The command that starts a gateway with this configuration."""
    return [*WITH_US, "-m", "gateway", "serve", "--config", str(file)]


def configuration(
    workers: Mapping[str, WorkerPlan], max_concurrency: int, key: str, settings: Sections | None = None
) -> str:
    """The gateway's file, in which workers stand by their URLs. All that is not named keeps its default."""
    more = settings or {}
    named = {name: {**OWN.get(name, {}), **more.get(name, {})} for name in (*OWN, *more)}
    sections = [
        *("\n".join([f"[{name}]", *_members(fields)]) for name, fields in named.items()),
        *(f'[[models]]\nname = "{model}"' for model in dict.fromkeys(of.model for of in workers.values())),
        *(
            f'[[workers]]\nid = "w{number}"\nurl = "{url}"\nmodel = "{plan.model}"\n'
            f"max_concurrency = {max_concurrency}"
            for number, (url, plan) in enumerate(workers.items())
        ),
        '[[tenants]]\nid = "bench"',
        f'[[keys]]\nid = "bench-1"\ntenant = "bench"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"',
    ]
    return "\n\n".join(sections) + "\n"


def _members(fields: Mapping[str, str | float]) -> Iterator[str]:
    for name, value in fields.items():
        yield f"{name} = {json.dumps(value)}"  # TOML writes text, numbers and truth values as JSON does


def announced(service: Service, pattern: str, poll_s: float = POLL_S) -> Sequence[str]:
    """What a program tells of itself in its log: the groups of the pattern. Raises ServiceFailed."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while (found := re.search(pattern, service.log.read_text(errors="replace"))) is None:
        service.check()
        if time.monotonic() > deadline_s:
            raise ServiceFailed(
                f"{service.name} did not start within {START_LIMIT_S:.0f} s. {service.tail()}"
            )
        time.sleep(poll_s)
    return found.groups()

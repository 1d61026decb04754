"""What do all measurements of a run share? The workers, and what they and the gateway have done meanwhile."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from benchmarks.footprint.rig import WITH_US
from benchmarks.overhead.contenders import Target
from benchmarks.overhead.invalid import Invalid
from benchmarks.overhead.processors import CpuTime, tree_time
from benchmarks.overhead.requests import MODEL
from benchmarks.overhead.worker import PACE_PATH, STATS_PATH, Counts
from deploy.services import Service, ServiceFailed, running

WORKERS = 2  # so that a policy has a choice; one process, as all share a processor anyway
START_LIMIT_S = 60.0
STOP_S = 5.0
POLL_S = 0.05
QUIET_S = 0.1  # without any change at the workers: then all that callers left behind is cleaned up
SETTLE_LIMIT_S = 10.0
TOLD = re.compile(r"^(http://.*)\n", re.MULTILINE)  # where they listen; a whole line

Result = TypeVar("Result")


class Workers:
    """Our own, which count what they see."""

    def __init__(self, service: Service, urls: Sequence[str], client: httpx.Client) -> None:
        self.service = service
        self.urls = urls
        self._client = client

    def pace(self, interval_s: float) -> None:
        """Between two tokens of streams from now on; 0: as fast as the socket takes them."""
        self._client.post(
            self.urls[0] + PACE_PATH.decode(), json={"interval_s": interval_s}
        ).raise_for_status()

    def counts(self) -> Counts:
        """Since their start."""
        return Counts(**self._client.get(self.urls[0] + STATS_PATH.decode()).raise_for_status().json())

    def settled(self) -> Counts:
        """Wait until no stream is open and nothing comes any more. Raises Invalid after ten seconds."""
        deadline_s = time.monotonic() + SETTLE_LIMIT_S
        before, since_s = self.counts(), time.monotonic()
        while before.open_streams or time.monotonic() - since_s < QUIET_S:
            if time.monotonic() > deadline_s:
                raise Invalid(f"{before.open_streams} streams are still open at the workers")
            time.sleep(POLL_S)
            if (now := self.counts()) != before:
                before, since_s = now, time.monotonic()
        return before


@contextmanager
def running_workers(folder: Path) -> Iterator[Workers]:
    """They end with the block. Raises ServiceFailed or OSError."""
    command = [*WITH_US, "-m", "benchmarks.overhead.worker", "--model", MODEL, "--ports", str(WORKERS)]
    with (
        running("the workers", command, folder / "workers.log", STOP_S) as service,
        # Plain HTTP has no use for the system's certificates, whose reading takes long.
        httpx.Client(trust_env=False, verify=False) as client,
    ):
        deadline_s = time.monotonic() + START_LIMIT_S
        while not (told := TOLD.search(service.log.read_text(encoding="utf-8"))):
            service.check()
            if time.monotonic() > deadline_s:
                raise ServiceFailed(f"the workers did not start within {START_LIMIT_S:.0f} s")
            time.sleep(POLL_S)
        yield Workers(service, told[1].split(" "), client)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a load has cost, and what of it has reached the workers."""

    gateway: CpuTime | None  # None without one
    redis_s: float  # its processor time
    seen: Counts

    def cost(self, units: int, seconds: float) -> dict[str, float]:
        """The figures of a gateway for one of so many. seconds: that the load lasted."""
        seen = {"requests_seen": self.seen.requests}
        if self.gateway is None:
            return {**seen}
        return {
            **seen,
            "cpu_us": self.gateway.total_s / units * 1e6,
            "user_us": self.gateway.user_s / units * 1e6,
            "system_us": self.gateway.system_s / units * 1e6,
            "redis_us": self.redis_s / units * 1e6,
            "busy": self.gateway.total_s / seconds,
        }


def metered(target: Target, workers: Workers, load: Callable[[], Result]) -> tuple[Result, Spent]:
    """A load, and what it took until all was quiet again. Raises Invalid, ServiceFailed or OSError."""
    counts, cpu, redis_s = workers.settled(), _gateway_time(target), _redis_s(target)
    result = load()
    after = workers.settled()
    if target.service is not None:
        target.service.check()
    gateway = None if target.service is None else _gateway_time(target) - cpu
    seen = {name: value - getattr(counts, name) for name, value in asdict(after).items()}
    return result, Spent(gateway, _redis_s(target) - redis_s, Counts(**seen))


def _gateway_time(target: Target) -> CpuTime:
    return CpuTime() if target.service is None else tree_time(target.service.process.pid)


def _redis_s(target: Target) -> float:
    return 0.0 if target.redis_server is None else target.redis_server.cpu_s()

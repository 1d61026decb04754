"""What can stand between callers and workers? This gateway with each of its policies, or a rival."""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.footprint.rig import WITH_US
from benchmarks.routing.rivals import RIVALS, installed
from benchmarks.routing.workers import MAX_MODEL_LEN, free_ports
from deploy.services import Service, running, wait_ready

GATEWAY = "gateway"
OPEN = "open"
POLICIES = ("length_bucket", "least_work", "least_requests", "round_robin")
START_LIMIT_S = 60.0
STOP_S = 10.0
AT_ONCE = 256  # a worker's own max-num-seqs, and the gateway's default
WITHOUT_BOUND = 100_000


@dataclass(frozen=True, slots=True)
class Arm:
    """One thing that is measured, by its name on the command line."""

    router: str  # "gateway" or the name of a rival
    policy: str
    is_open: bool = False  # the gateway without its admission: everybody is sent on at once

    @property
    def name(self) -> str:
        return ":".join([self.router, self.policy, *([OPEN] if self.is_open else [])])


ARMS = {
    arm.name: arm
    for arm in (
        *(Arm(GATEWAY, policy) for policy in POLICIES),
        *(Arm(GATEWAY, policy, is_open=True) for policy in POLICIES),
        *(Arm(name, policy) for name, rival in RIVALS.items() for policy in rival.policies),
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where callers go."""

    url: str
    keys: Mapping[str, str]  # by tenant; rivals take any
    service: Service


@contextmanager
def running_arm(
    arm: Arm, model: str, workers: Sequence[str], tenants: Sequence[str], folder: Path
) -> Iterator[Target]:
    """Ready to serve; it ends with the block. workers: URLs. Raises ServiceFailed."""
    keys = {tenant: f"sk-{secrets.token_urlsafe(32)}" for tenant in tenants}
    ports = free_ports(2)
    if arm.router == GATEWAY:
        file, ready = folder / "gateway.toml", "/ready"
        file.write_text(configuration(arm, model, workers, keys, ports), encoding="utf-8")
        command = [*WITH_US, "-m", "gateway", "serve", "--config", str(file)]
    else:
        rival = RIVALS[arm.router]
        ready = rival.ready
        command = [*WITH_US[:-1], *rival.command(installed(rival), arm.policy, ports, workers)]  # no Python
    with running(arm.name, command, folder / "arm.log", STOP_S) as service:
        target = Target(f"http://127.0.0.1:{ports[0]}", keys, service)
        wait_ready(target.url + ready, [service], START_LIMIT_S)
        yield target


def configuration(
    arm: Arm, model: str, workers: Sequence[str], keys: Mapping[str, str], ports: Sequence[int]
) -> str:
    """The gateway's file. All that is not named keeps its default: that is what is measured.

    ports: the public one and that of metrics.
    """
    at_once = WITHOUT_BOUND if arm.is_open else AT_ONCE
    bounds: dict[str, int] = {}
    if arm.is_open:
        bounds = {"max_long_prefills": WITHOUT_BOUND, "max_prefills": WITHOUT_BOUND, "adaptive_limit": False}
    sections = [
        _section("[server]", host="127.0.0.1", port=ports[0], admin_port=ports[1], drain_s=0),
        _section("[routing]", policy=arm.policy, **bounds),
        _section("[[models]]", name=model, max_model_len=MAX_MODEL_LEN),
    ]
    for number, url in enumerate(workers):
        sections.append(
            _section("[[workers]]", id=f"w{number}", url=url, model=model, max_concurrency=at_once)
        )
    for tenant, key in keys.items():
        sha256 = hashlib.sha256(key.encode()).hexdigest()
        sections.append(_section("[[tenants]]", id=tenant))
        sections.append(_section("[[keys]]", id=f"{tenant}-1", tenant=tenant, sha256=sha256))
    return "\n\n".join(sections) + "\n"


def _section(head: str, /, **values: str | int) -> str:
    lines = (
        f"{key} = {json.dumps(value)}"  # strings, integers and truth values look the same in TOML
        for key, value in values.items()
    )
    return "\n".join([head, *lines])

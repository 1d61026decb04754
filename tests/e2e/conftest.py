"""What do the end-to-end tests run against? Two real vLLM workers and the gateway, as a user has them."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from deploy import demo, fleets, services
from gateway import server
from tests.ports import free_ports
from workers.cpu import locate

BIN = Path(sys.executable).parent
START_LIMIT_S = 480.0  # two contended starts take three minutes on two cores
STOP_S = 60.0


@dataclass(frozen=True)
class RealStack:
    """The running programs and how to reach them."""

    gateway_url: str
    admin_url: str
    key: str
    model: str
    worker_urls: tuple[str, ...]
    supervisor: services.Service

    def client(self) -> OpenAI:
        """The official SDK on the gateway, without retries, so that every failure shows."""
        return OpenAI(base_url=f"{self.gateway_url}/v1", api_key=self.key, max_retries=0)

    def worker_client(self, number: int = 0) -> OpenAI:
        """The SDK on a worker, past the gateway."""
        return OpenAI(base_url=f"{self.worker_urls[number]}/v1", api_key="none", max_retries=0)

    def running(self) -> float:
        """Requests that the workers' engines are running."""
        return sum(metric(url, "vllm:num_requests_running") for url in self.worker_urls)

    def worker_process(self, number: int) -> int:
        """The id of a worker's API process, a child of `workers up`."""
        port = self.worker_urls[number].rsplit(":", 1)[1]
        pid = self.supervisor.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if port in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return int(child)
        raise LookupError(f"no child of {pid} was started for port {port}")


def metric(url: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that carry these labels."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


class Nobody:
    """What no application is."""


@pytest.fixture(params=["direct", "asgi"])
def either_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a caller sees is the same by both lanes, so the test runs once by each."""
    if request.param == "asgi":
        monkeypatch.setattr(server, "ServesDirectly", Nobody)


@pytest.fixture(scope="package")
def real_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    """Two CPU workers kept by `workers up`, and one gateway; started once for the tests of this folder."""
    place = tmp_path_factory.mktemp("real")
    environment = locate()
    gateway_port, _, *worker_ports = free_ports(4)  # the second is the gateway's admin port
    fleet = fleets.cpu_fleet(worker_ports, environment)
    key = f"sk-test-{secrets.token_urlsafe(24)}"
    (place / "fleet.toml").write_text(fleet.text)
    (place / "gateway.toml").write_text(demo.gateway_configuration(fleet, gateway_port, key))
    with ExitStack() as stack:
        up: list[str | Path] = [BIN / "workers", "up", "--fleet", place / "fleet.toml", "--logs", place]
        workers = stack.enter_context(services.running("workers", up, place / "workers.log", STOP_S))
        urls = tuple(f"http://127.0.0.1:{port}" for port in fleet.ports)
        for url in urls:
            services.wait_ready(f"{url}/health", [workers], START_LIMIT_S)
        serve: list[str | Path] = [BIN / "gateway", "serve", "--config", place / "gateway.toml"]
        gateway = stack.enter_context(services.running("gateway", serve, place / "gateway.log", STOP_S))
        services.wait_ready(f"http://127.0.0.1:{gateway_port}/ready", [workers, gateway], START_LIMIT_S)
        yield RealStack(
            gateway_url=f"http://127.0.0.1:{gateway_port}",
            admin_url=f"http://127.0.0.1:{gateway_port + 1}",
            key=key,
            model=fleet.model,
            worker_urls=urls,
            supervisor=workers,
        )

"""Do the containers' own commands work? Each is started here as a process, with other paths and ports."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import openai
import pytest
import yaml

from deploy.services import Service, running, wait_ready
from tests.deploy.files import ROOT, last, services, tool
from tests.fakes import FakeWorker
from tests.vllm_answers import MODEL, answer_of

START_LIMIT_S = 60.0
STOP_S = 20.0
KEY = "sk-made-by-the-operator"


def free_port() -> int:
    """One that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ready(service: Service, url: str) -> None:
    await asyncio.to_thread(wait_ready, url, [service], START_LIMIT_S)


class ComposedGateway:
    """What the gateway's container runs, with its own configuration but for addresses."""

    def __init__(self, place: Path, worker_cpu_url: str, redis_url: str) -> None:
        self._redis_url = redis_url
        self.port, self.admin_port = free_port(), free_port()
        self.url, self.admin_url = (f"http://127.0.0.1:{port}" for port in (self.port, self.admin_port))
        config = (ROOT / "deploy/gateway.compose.toml").read_text(encoding="utf-8")
        config = config.replace("http://worker-cpu:8000", worker_cpu_url)
        self.file = place / "gateway.toml"
        self.file.write_text(config, encoding="utf-8")
        self.log = place / "gateway.log"

    def command(self) -> list[str]:
        [mount] = services()["gateway"]["volumes"]
        inside = mount.split(":")[1]
        program, *arguments = [*last("ENTRYPOINT").words(), *last("CMD").words()]
        assert inside in arguments  # what is mounted is what is read
        here = str(Path(sys.executable).with_name(program))
        return [here, *(str(self.file) if word == inside else word for word in arguments)]

    def environment(self) -> dict[str, str]:
        return {
            "GATEWAY_SERVER_HOST": "127.0.0.1",
            "GATEWAY_SERVER_PORT": str(self.port),
            "GATEWAY_SERVER_ADMIN_HOST": "127.0.0.1",
            "GATEWAY_SERVER_ADMIN_PORT": str(self.admin_port),
            "GATEWAY_SERVER_SETTLE_S": "0",  # there is no balancer
            "GATEWAY_STORE_URL": self._redis_url,
        }

    def key(self) -> str:
        """A new one, made as the comments of the configuration say."""
        text = (ROOT / "deploy/gateway.compose.toml").read_text(encoding="utf-8")
        words = text[text.index("docker compose exec gateway") :].split("\n")[0].split()[4:]
        program, *arguments = [str(self.file) if word.endswith(".toml") else word for word in words]
        here = str(Path(sys.executable).with_name(program))
        env = self.environment()
        said = subprocess.run([here, *arguments], env=env, capture_output=True, text=True, check=True).stdout
        [secret] = re.findall(r"sk-\S+", said)
        return str(secret)

    def health_check(self, port: int) -> int:
        """The exit status of the image's health check."""
        program, *arguments = last("HEALTHCHECK").words()
        assert program == "python"
        script = [word.replace("8080", str(port)) for word in arguments]
        # The proxy leads nowhere: a check that went through it would fail.
        env = {"http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run([sys.executable, *script], env=env, capture_output=True, check=False)
        return done.returncode

    def running(self) -> AbstractContextManager[Service]:
        return running("gateway", self.command(), self.log, STOP_S, self.environment())


async def test_the_composed_gateway_serves_while_the_other_profiles_worker_does_not_exist(
    tmp_path: Path, redis_url: str
) -> None:
    """Its name, worker-gpu, resolves nowhere, as in Docker when that profile is not running."""
    async with FakeWorker(answer_of(3)) as worker:
        gateway = ComposedGateway(tmp_path, worker.url, redis_url)
        with gateway.running() as service:
            await ready(service, f"{gateway.url}/ready")
            key = gateway.key()
            async with openai.AsyncOpenAI(api_key=key, base_url=f"{gateway.url}/v1", max_retries=0) as client:
                answer = await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hello"}]
                )
                with pytest.raises(openai.InternalServerError) as refusal:
                    await client.chat.completions.create(
                        model="qwen2.5-7b", messages=[{"role": "user", "content": "hello"}]
                    )
            async with httpx.AsyncClient(trust_env=False) as web:
                metrics = await web.get(f"{gateway.admin_url}/metrics")
                on_public_port = await web.get(f"{gateway.url}/metrics")

            assert refusal.value.code == "no_worker"
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 3
            assert 'gateway_worker_up{worker="cpu0"} 1' in metrics.text
            assert 'gateway_worker_up{worker="gpu0"} 0' in metrics.text
            assert on_public_port.status_code == 404
            assert gateway.health_check(gateway.port) == 0

    assert gateway.health_check(gateway.port) != 0  # it has ended
    assert service.process.returncode == 0, service.tail()


async def test_as_shipped_the_composed_gateway_lets_nobody_in(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker:
        gateway = ComposedGateway(tmp_path, worker.url, redis_url)
        with gateway.running() as service:
            await ready(service, f"{gateway.url}/health")
            async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=0) as client:
                with pytest.raises(openai.AuthenticationError):
                    await client.models.list()


def test_redis_becomes_healthy_and_keeps_what_it_is_told(tmp_path: Path) -> None:
    redis = services()["redis"]
    program, *arguments = redis["command"]
    port = str(free_port())
    here = [
        tool(program, "redis-server"),
        *arguments,
        "--port",
        port,
        "--bind",
        "127.0.0.1",
        "--dir",
        str(tmp_path),
    ]
    kind, check = redis["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    check = check.replace("redis-cli", f"{tool('redis-cli', 'redis-tools')} -p {port}")
    with running("redis", here, tmp_path / "redis.log", STOP_S) as service:
        until_exit_0(check, service)

    assert service.process.returncode == 0, service.tail()
    assert (tmp_path / "appendonlydir").is_dir() or (tmp_path / "appendonly.aof").is_file()


def until_exit_0(check: str, service: Service) -> None:
    """Repeats a health check, as Docker does, until it passes or the program ends."""
    while subprocess.run(["sh", "-c", check], check=False, capture_output=True).returncode:
        service.check()


@contextmanager
def prometheus(place: Path, gateway: ComposedGateway, worker: FakeWorker) -> Iterator[tuple[Service, str]]:
    """What its container runs: the same file, but for the places of what it scrapes, and every second."""
    address = f"127.0.0.1:{free_port()}"
    config = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8"))
    config["global"]["scrape_interval"] = "1s"
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    del jobs["workers"]["dns_sd_configs"]
    places = {"gateway": gateway.admin_url, "workers": worker.url, "prometheus": f"http://{address}"}
    for name, url in places.items():
        jobs[name]["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    (place / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")

    found = services()["prometheus"]
    inside = [mount.split(":")[1] for mount in found["volumes"]]
    command = [tool("prometheus", "prometheus"), *found["command"], f"--web.listen-address={address}"]
    for path, here in zip(inside, (place / "prometheus.yml", place / "data"), strict=True):
        assert any(word.endswith(f"={path}") for word in command)
        command = [word.replace(f"={path}", f"={here}") for word in command]
    with running("prometheus", command, place / "prometheus.log", STOP_S) as service:
        yield service, f"http://{address}"


async def until_up(url: str, jobs: set[str], service: Service) -> None:
    """Asks Prometheus until it has scraped a target of every job with success."""
    up: set[str] = set()
    async with httpx.AsyncClient(trust_env=False) as web:
        while up != jobs:
            service.check()
            answer = await web.get(f"{url}/api/v1/query", params={"query": "up == 1"})
            up = {row["metric"]["job"] for row in answer.json()["data"]["result"]}
            await asyncio.sleep(0.1)


async def test_prometheus_scrapes_gateway_workers_and_itself(tmp_path: Path, redis_url: str) -> None:
    async with FakeWorker() as worker:
        gateway = ComposedGateway(tmp_path, worker.url, redis_url)
        with gateway.running() as gateway_service, prometheus(tmp_path, gateway, worker) as (service, url):
            await ready(gateway_service, f"{gateway.url}/health")
            await ready(service, f"{url}/-/ready")
            await until_up(url, {"gateway", "workers", "prometheus"}, service)

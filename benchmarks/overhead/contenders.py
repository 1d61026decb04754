"""What can stand between callers and workers, and how is it started? As its authors advise, and quiet."""

import atexit
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks import environments
from benchmarks.footprint.rig import WITH_US
from benchmarks.limits.server import RedisServer, running_redis
from benchmarks.overhead.requests import MODEL
from benchmarks.routing.rivals import RIVALS
from benchmarks.routing.workers import free_ports
from deploy.services import Service, running, wait_ready

DIRECT, NGINX, LITELLM = "direct", "nginx", "litellm"
VLLM_ROUTER, SGLANG_ROUTER = "vllm-router", "sglang-router"
MEMORY, REDIS, TWO_PROCESSES = "gateway:memory", "gateway:redis", "gateway:redis:2"
COMPILED_MEMORY, COMPILED_REDIS = COMPILED = ("gateway:memory:compiled", "gateway:redis:compiled")
PLAIN, STREAM, FLOOD, QUARTER, SCALING = PHASES = ("plain", "stream", "flood", "quarter", "scaling")
LITELLM_PACKAGE, LITELLM_VERSION = "litellm[proxy]", "1.108.7"
POLICY = "round_robin"  # of others: their cheapest
START_LIMIT_S = 120.0  # LiteLLM takes half a minute on a busy machine
STOP_S = 10.0
STORE_TIMEOUT_MS = 500  # Redis shares a processor with the load, and limits shall be kept in it nevertheless
HUGE = 10**9  # of a limit that is counted and never reached
AT_ONCE = 100_000
SYSTEM_FOLDERS = "/usr/sbin:/sbin"  # where Debian has nginx, and not everybody looks

Values = Mapping[str, str | int]  # of a section


@dataclass(frozen=True, slots=True)
class Contender:
    """By its name on the command line. connections: at once, by phase."""

    name: str
    connections: Mapping[str, int]
    processes: int = 1
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("gateway:")

    @property
    def is_made(self) -> bool:
        """From the package index, or compiled, before anything is measured."""
        return self.name in RIVALS or self.name == LITELLM or self.is_compiled

    @property
    def is_compiled(self) -> bool:
        return self.name in COMPILED

    @property
    def has_redis(self) -> bool:
        return self.name in (REDIS, TWO_PROCESSES, COMPILED_REDIS)


MOST = {PLAIN: 32, STREAM: 64, FLOOD: 256, QUARTER: 32}
CONTENDERS = {
    each.name: each
    for each in (
        Contender(DIRECT, {PLAIN: 32, STREAM: 64}),
        Contender(NGINX, MOST),
        Contender(VLLM_ROUTER, MOST),
        Contender(SGLANG_ROUTER, MOST),
        # hundreds of times slower: more would only wait. It would fetch prices at its start.
        Contender(LITELLM, {PLAIN: 4, STREAM: 2}, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
        Contender(MEMORY, MOST),
        Contender(REDIS, MOST | {SCALING: 32}),
        Contender(TWO_PROCESSES, {SCALING: 64}, processes=2),  # as many for each process
        Contender(COMPILED_MEMORY, MOST),
        Contender(COMPILED_REDIS, MOST),
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where callers go. Without a gateway there is no service, and only ours has an admin port."""

    url: str
    key: str
    service: Service | None = None
    admin_url: str | None = None
    redis_server: RedisServer | None = None


@contextmanager
def running_contender(
    contender: Contender, workers: Sequence[str], processors: str, folder: Path
) -> Iterator[Target]:
    """Ready to serve; it ends with the block. Raises ServiceFailed or OSError.

    workers: URLs. processors: of the gateway alone, for taskset; its Redis runs where we do.
    """
    key = f"sk-{secrets.token_urlsafe(32)}"
    if contender.name == DIRECT:
        yield Target(workers[0], key)
        return
    with ExitStack() as stack:
        redis_server = stack.enter_context(running_redis()) if contender.has_redis else None
        ports = free_ports(2)
        start = Start(contender, ports, workers, key, folder, redis_server.url if redis_server else None)
        command = [*WITH_US[:-1], "taskset", "--cpu-list", processors, *start.command()]
        log = folder / "gateway.log"
        service = stack.enter_context(running(contender.name, command, log, STOP_S, contender.env))
        url, admin_url = (f"http://127.0.0.1:{port}" for port in ports)
        wait_ready(url + start.ready, [service], START_LIMIT_S)
        yield Target(url, key, service, admin_url if contender.is_ours else None, redis_server)


@dataclass(frozen=True, slots=True)
class Start:
    """What one start of a gateway is given. ports: the public one and that of metrics."""

    contender: Contender
    ports: Sequence[int]
    workers: Sequence[str]
    key: str
    folder: Path  # for configuration
    store: str | None = None  # URL of a Redis

    @property
    def ready(self) -> str:
        """The path that answers 200 when it can route; nginx has none, and asks a worker."""
        if self.contender.is_ours:
            return "/ready"
        rival = RIVALS.get(self.contender.name)
        return rival.ready if rival else {LITELLM: "/health/liveliness"}.get(self.contender.name, "/health")

    def command(self) -> list[str]:
        """Without what pins it to a processor. Raises ServiceFailed where it cannot be installed."""
        if self.contender.is_ours:
            file = self._file("gateway.toml", self.gateway_toml())
            served = ["-m", "gateway", "serve", "--config", str(file)]
            if not self.contender.is_compiled:
                return [WITH_US[-1], *served]
            # -P: else the sources come first, where this is the checkout
            return ["env", f"PYTHONPATH={installed(self.contender)}", WITH_US[-1], "-P", *served]
        program = str(installed(self.contender))
        if self.contender.name in RIVALS:
            rival = RIVALS[self.contender.name]
            return rival.command(Path(program), POLICY, self.ports, self.workers)
        if self.contender.name == LITELLM:
            file = self._file("litellm.yaml", self.litellm_yaml())
            options = ["--host", "127.0.0.1", "--port", str(self.ports[0]), "--telemetry", "False"]
            return [program, "--config", str(file), "--num_workers", "1", *options]
        file = self._file("nginx.conf", self.nginx_conf())
        return [program, "-e", "stderr", "-p", str(self.folder), "-c", str(file)]

    def _file(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def nginx_conf(self) -> str:
        """A proxy that passes on what comes, as soon as it comes, over connections that it keeps."""
        servers = " ".join(f"server {url.removeprefix('http://')};" for url in self.workers)
        folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        # Run by root it would serve as nobody, who may not enter our folder.
        user = "user root;\n" if os.geteuid() == 0 else ""
        return (
            f"{user}worker_processes 1;\ndaemon off;\npid nginx.pid;\nevents {{ worker_connections 4096; }}\n"
            "http {\n  access_log off;\n  keepalive_requests 1000000000;\n  client_body_buffer_size 64k;\n"
            + "".join(f"  {name}_temp_path {name};\n" for name in folders)
            + f"  upstream workers {{ {servers} keepalive 512; keepalive_requests 1000000000; }}\n"
            f"  server {{\n    listen 127.0.0.1:{self.ports[0]} backlog=4096;\n    location / {{\n"
            "      proxy_pass http://workers;\n      proxy_http_version 1.1;\n"
            '      proxy_set_header Connection "";\n      proxy_buffering off;\n    }\n  }\n}\n'
        )

    def litellm_yaml(self) -> str:
        """JSON, which is YAML too."""
        models = [
            {
                "model_name": MODEL,
                "litellm_params": {
                    "model": f"hosted_vllm/{MODEL}",
                    "api_base": f"{url}/v1",
                    "api_key": "none",
                },
            }
            for url in self.workers
        ]
        return json.dumps({"model_list": models, "general_settings": {"master_key": self.key}})

    def gateway_toml(self) -> str:
        """Everything on: key, every kind of limit, the policy of buckets, metrics and the log of requests."""
        sha256 = hashlib.sha256(self.key.encode()).hexdigest()
        port, admin_port = self.ports
        server: Values = {
            "port": port,
            "admin_port": admin_port,
            "processes": self.contender.processes,
            "drain_s": 0,
        }
        limits = {"requests_per_minute": HUGE, "tokens_per_minute": HUGE, "max_concurrency": AT_ONCE}
        store: Values = {"url": self.store or "memory://", "timeout_ms": STORE_TIMEOUT_MS}
        sections = [
            _section("[server]", {"host": "127.0.0.1", **server}),
            _section("[store]", store),
            _section("[routing]", {"policy": "length_bucket"}),
            _section("[[models]]", {"name": MODEL}),
            _section("[[tenants]]", {"id": "bench", **limits}),
            _section("[[keys]]", {"id": "bench-1", "tenant": "bench", "sha256": sha256}),
        ]
        for number, url in enumerate(self.workers):
            sections.append(_section("[[workers]]", {"id": f"w{number}", "url": url, "model": MODEL}))
        return "\n\n".join(sections) + "\n"


def _section(head: str, values: Values) -> str:
    # strings and integers look the same in TOML as in JSON
    return "\n".join([head, *(f"{name} = {json.dumps(value)}" for name, value in values.items())])


def found(program: str) -> str | None:
    """Where a program of the system lies."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")


def installed(contender: Contender) -> Path:
    """Somebody else's gateway, from the system or from the package index; or ours, compiled, as a place for
    modules. Raises ServiceFailed."""
    if contender.is_compiled:
        return _compiled()
    if contender.name in RIVALS:
        rival = RIVALS[contender.name]
        return environments.installed(rival.package, rival.version, rival.program)
    if contender.name == LITELLM:
        return environments.installed(LITELLM_PACKAGE, LITELLM_VERSION, "litellm")
    return Path(found(contender.name) or contender.name)


@cache
def _compiled() -> Path:
    """Made once, and gone with this process."""
    folder = tempfile.mkdtemp(prefix="compiled-")
    atexit.register(shutil.rmtree, folder)
    environments.compiled(Path(folder))
    return Path(folder)

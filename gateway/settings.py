"""Every setting: its name, default, bounds, and why the default is what it is.

One class a section of the TOML file. How a file becomes these objects is in `configuration.py`.
"""

import re
from itertools import pairwise
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr


def _text(pattern: str, allowed: str) -> AfterValidator:
    """Text that matches as a whole; `allowed` says the same in words, for the message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


# Safe as a metric label, in a log line and in TOML quotes.
Identifier = Annotated[str, _text(r"[A-Za-z0-9._-]{1,64}", "1 to 64 letters, digits or . _ -")]
_MODEL_NAME = r"[A-Za-z0-9._:/@-]{1,200}"
ModelName = Annotated[str, _text(_MODEL_NAME, "1 to 200 letters, digits or . _ : / @ -")]
_VARIABLE = _text(r"([A-Za-z_][A-Za-z0-9_]*)?", "a variable's name: letters, digits or _")
ModelChoice = Annotated[str, _text(rf"\*|{_MODEL_NAME}", 'a model\'s name or alias, or "*" for all')]
Port = Annotated[int, Field(ge=0, le=65535)]  # 0: any free one
Seconds = Annotated[float, Field(gt=0, le=86400)]
Positive = Annotated[int, Field(ge=1)]


def _worker_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, or a port that is none
        is_whole = False
    if not is_whole or not re.fullmatch(r"[!-~]+", value):
        raise ValueError("must be http://host:port or https://host:port")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must have no user, query or fragment; a worker's key goes into api_key_env")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ValueError("must end before /v1, which the gateway adds")
    return value.rstrip("/")


def _rising(value: list[int]) -> list[int]:
    if any(edge <= 0 for edge in value) or any(a >= b for a, b in pairwise(value)):
        raise ValueError("must be positive and rising, as [1024, 8192]")
    return value


def _store_url(value: str) -> str:
    if value.startswith(("redis://", "rediss://")):
        raise ValueError(
            'must be "memory://": Redis is not supported yet, this version keeps limits in memory'
        )
    if value != "memory://":
        raise ValueError('must be "memory://"')
    return value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Server(Section):
    host: str = "127.0.0.1"
    """Address of the public port. "0.0.0.0" for all."""
    port: Port = 8080
    """The public port."""
    admin_host: str = "127.0.0.1"
    """Address of the admin port. It has no credentials: keep it private."""
    admin_port: Port = 8081
    """Metrics."""
    processes: Positive = 1
    """Processes that serve. More than one needs a store that they share."""
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 30
    """After SIGTERM, how long streams may go on."""
    keep_alive_s: Seconds = 75
    """How long an idle caller's connection is kept: above the 60 s of common load balancers."""
    header_timeout_s: Seconds = 10
    """For the whole head of a request."""
    body_timeout_s: Seconds = 30
    """For each read of a request's body."""
    client_stall_s: Seconds = 60
    """A caller that takes nothing for so long is cut off."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 52428800
    """Larger bodies get 413. 50 MB leaves room for images."""
    cors_origins: list[str] = []
    """Origins of browser applications that may call, or ["*"]."""


class Auth(Section):
    required: bool = True
    """Without it, anyone who reaches the port may call: only on loopback."""
    cache_salt_secret: SecretStr = SecretStr("")
    """Keeps tenants from timing each other's cached prompts. Empty: a new one at each start, so prefix
    caches start cold. Give all replicas the same."""


class Store(Section):
    url: Annotated[str, AfterValidator(_store_url)] = "memory://"
    """Where limits are counted."""
    on_failure: Literal["local", "closed", "open"] = "local"
    """What holds while a store outside this process is away. The memory store is never away."""
    timeout_ms: Positive = 250
    """For one call to a store outside this process."""


class Limits(Section):
    lease_ttl_s: Seconds = 30
    """How long a store outside this process keeps the slots of a process that died."""


class Intake(Section):
    max_n: Positive = 8
    """Largest `n`; vLLM itself takes 16,384."""
    max_sequences: Positive = 64
    """Largest n x prompts of one request: each is a sequence in the worker's batch."""
    max_prompts: Positive = 64
    """Most prompts in one completions request."""
    max_logprobs: Annotated[int, Field(ge=0)] = 20
    """Largest `logprobs` and `top_logprobs`; vLLM's own default limit."""
    allow_prompt_logprobs: bool = False
    """They bypass the prefix cache and make answers as large as prompts."""
    allow_chat_template: bool = False
    """Whether a caller may send a template of its own, which the worker executes."""


class Admission(Section):
    max_queued: Annotated[int, Field(ge=0)] = 1000
    """Requests that wait in this process. One more gets 503 at once."""
    max_wait_s: Seconds = 60
    """Longest wait for a worker."""
    tenant_queue_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of max_queued that one tenant may fill while the queue is more than half full."""


class Routing(Section):
    policy: Literal["length_bucket", "least_requests", "round_robin"] = "length_bucket"
    """How a worker is chosen."""
    bucket_edges: Annotated[list[int], Field(max_length=16), AfterValidator(_rising)] = [1024, 8192]
    """Prompt tokens at which a longer bucket begins. Empty: one bucket."""


class Upstream(Section):
    connect_timeout_s: Seconds = 5
    """To connect to a worker, TLS included."""
    first_byte_timeout_s: Seconds = 600
    """From the request to the first byte of the answer: a whole answer where it is not streamed."""
    gap_timeout_s: Seconds = 60
    """Between two bytes of an answer."""
    idle_s: Seconds = 4
    """How long an idle connection to a worker is kept. Below vLLM's own 5 s, so that it is never reused
    while the worker closes it; raise it together with VLLM_HTTP_TIMEOUT_KEEP_ALIVE."""
    max_age_s: Seconds = 300
    """Connections older than that are not reused, so that a worker that moved is followed."""
    ca_file: str = ""
    """Certificates that https workers are checked against. Empty: the system's."""


class Fleet(Section):
    probe_interval_s: Seconds = 2
    """Between two health checks of a worker."""
    probe_timeout_s: Seconds = 2
    """For one health check."""
    failures: Positive = 3
    """Checks or connections that must fail in a row before a worker is passed over."""
    ejection_s: Seconds = 10
    """How long a worker is passed over at least, once requests could not reach it."""


class ModelSettings(Section):
    name: ModelName
    """The name that workers serve it under (--served-model-name)."""
    aliases: list[ModelName] = []
    """Other names that callers may use."""
    max_model_len: Positive | None = None
    """Longest prompt and output together, in tokens. Left out: what the workers report."""
    default_max_tokens: Positive | None = None
    """Output of a chat request that names no maximum. Left out: the worker's default, the whole rest of
    max_model_len."""
    max_output_tokens: Positive | None = None
    """Largest maximum; a larger one is lowered to it."""


class WorkerSettings(Section):
    id: Identifier
    """Its name in metrics, logs and the x-gateway-worker header."""
    url: Annotated[str, AfterValidator(_worker_url)]
    """Where `vllm serve` listens."""
    model: ModelName
    """The name of one of [[models]]."""
    max_concurrency: Positive = 256
    """Most requests at once. vLLM batches up to max-num-seqs."""
    api_key_env: Annotated[str, _VARIABLE] = ""
    """Environment variable that holds the worker's own key (vllm serve --api-key), never the key itself."""


class TenantSettings(Section):
    id: Identifier
    """Its name in metrics and logs."""
    models: list[ModelChoice] = ["*"]
    """Models that it may use, by name or alias."""
    requests_per_minute: Positive | None = None
    """Left out: no limit."""
    tokens_per_minute: Positive | None = None
    """Prompt and output tokens. Left out: no limit."""
    max_concurrency: Positive | None = None
    """Requests at once, queued ones included. Left out: no limit."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Its share of the queue. Kept for a fair queue: first come, first served ignores it."""
    priority: Literal["interactive", "default", "batch"] = "default"
    """Its place in the queue. Kept for a fair queue: first come, first served ignores it."""


class KeySettings(Section):
    id: Identifier
    """Its name in logs; not secret."""
    tenant: Identifier
    """The id of one of [[tenants]]."""
    sha256: Annotated[str, _text("[0-9a-fA-F]{64}", "64 hex digits"), AfterValidator(str.lower)]
    """Hex SHA-256 of the whole key, never the key itself: gateway keys create prints it."""


class Settings(Section):
    """A whole configuration file."""

    server: Server = Server()
    auth: Auth = Auth()
    store: Store = Store()
    limits: Limits = Limits()
    intake: Intake = Intake()
    admission: Admission = Admission()
    routing: Routing = Routing()
    upstream: Upstream = Upstream()
    fleet: Fleet = Fleet()
    models: tuple[ModelSettings, ...] = ()
    workers: tuple[WorkerSettings, ...] = ()
    tenants: tuple[TenantSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()

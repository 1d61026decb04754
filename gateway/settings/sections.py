"""Every setting of a section: its name, default, bounds, and why the default is what it is.

One class a section of the TOML file.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from gateway.settings.values import KeyHash, Port, Positive, Seconds, Section, StoreUrl, rising, text


class Server(Section):
    host: str = "127.0.0.1"
    """Address of the public port. "0.0.0.0" for all."""
    port: Port = 8080
    """The public port."""
    admin_host: str = "127.0.0.1"
    """Address of the admin port. Metrics need no credential there: keep it private."""
    admin_port: Port = 8081
    """Metrics and the admin API."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that serve. More than one needs a Redis store, which they share."""
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 30
    """After SIGTERM, how long streams may go on."""
    settle_s: Annotated[float, Field(ge=0, le=3600)] = 5
    """The first part of drain_s, in which new requests are served as before: balancers need a moment to learn
    from /ready that none should come. After SIGINT there is none."""
    keep_alive_s: Seconds = 75
    """How long an idle caller's connection is kept: above the 60 s of common load balancers."""
    header_timeout_s: Seconds = 10
    """For the whole head of a request."""
    body_timeout_s: Seconds = 30
    """For each read of a request's body. After so long, less than 1 KiB/s on average is too slow as well."""
    client_stall_s: Seconds = 60
    """A caller that takes nothing for so long is cut off."""
    request_timeout_s: Seconds = 3600
    """For a whole request, from its head to the end of its answer, the queue included. An hour is above what
    the longest answers take."""
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


class Admin(Section):
    key_sha256: KeyHash | None = None
    """Hex SHA-256 of the admin API's own key: gateway keys admin makes one. Left out: the API is
    closed."""


class Store(Section):
    url: StoreUrl = "memory://"
    """Where limits, keys and usage are kept. A password belongs in the variable GATEWAY_STORE_URL."""
    prefix: Annotated[str, text(r"[A-Za-z0-9._:-]{1,32}", "1 to 32 letters, digits or . _ : -")] = "gateway"
    """Begins the name of every Redis key, so that several gateways can share a Redis. All replicas have the
    same."""
    ca_file: str = ""
    """Certificates that a rediss:// server is checked against. Empty: the system's."""
    on_failure: Literal["local", "closed", "open"] = "local"
    """What holds while Redis is away. local: each process grants 0.8 of its part of each limit from memory;
    closed: limited tenants get 503; open: nothing is limited."""
    timeout_ms: Annotated[int, Field(ge=10, le=10_000)] = 250
    """For one step in Redis, from its sending on. After that, on_failure holds until Redis answers again."""


class Limits(Section):
    lease_ttl_s: Annotated[float, Field(ge=3, le=3600)] = 30
    """How long Redis keeps the slots of a process that died. They are renewed each third of it."""


class Usage(Section):
    retention_days: Annotated[int, Field(ge=1, le=3660)] = 400
    """How long Redis keeps a day's sums."""
    records: str = ""
    """A file to which each finished request adds one JSON line of its usage. Empty: none."""


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
    allow_logprobs: bool = True
    """Whether callers may ask for the log probabilities of tokens. A tenant's own setting goes before."""
    allow_chat_template: bool = False
    """Whether a caller may send a template of its own, which the worker executes. A tenant's own setting goes
    before."""
    allow_media_urls: bool = False
    """Whether messages may name images, audio and video by http(s) address, which the worker fetches from
    inside your network. data: addresses are always taken. A tenant's own setting goes before."""


class Admission(Section):
    max_queued: Annotated[int, Field(ge=0)] = 1000
    """Requests that wait in this process. One more gets 503 at once."""
    max_wait_s: Seconds = 60
    """Longest wait for a worker."""
    tenant_queue_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of max_queued that one tenant may fill while the queue is more than half full."""
    tenant_flight_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a model's workers that one tenant may hold while others wait."""


class Routing(Section):
    policy: Literal["length_bucket", "least_work", "least_requests", "round_robin"] = "length_bucket"
    """How a worker is chosen."""
    bucket_edges: Annotated[list[int], Field(max_length=16), AfterValidator(rising)] = [1024, 8192]
    """Prompt tokens at which a longer bucket begins. Empty: one bucket."""
    long_prompt_tokens: Positive = 4096
    """Prompts of so many tokens are long: what a large GPU takes more than a tenth of a second to read."""
    learn_long_prompts: bool = False
    """Whether that moves to where it best parts the prompts that come into long and short."""
    max_long_prefills: Positive = 1
    """Long prompts that one worker reads at once; more of them wait, and others pass."""
    adaptive_limit: bool = True
    """Whether the number of requests at once is sought between 8 and a worker's max_concurrency, by how fast
    its tokens come. Off: it is max_concurrency."""
    max_prefills: Positive = 4
    """Requests without a first token that one worker has at once, unless their prompts are short."""
    prefix_affinity: bool = True
    """Whether a prompt that a worker has cached counts as less work there. Off: for workers that run with
    --no-enable-prefix-caching."""


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


class Relay(Section):
    heartbeat_s: Annotated[float, Field(ge=0, le=3600)] = 0
    """A caller who waits for a stream and is sent nothing for so long gets a comment, so that balancers do
    not cut it off as idle. The first one commits a 200: what goes wrong later is told in the stream. 0:
    none."""


class Fleet(Section):
    probe_interval_s: Seconds = 2
    """Between two health checks of a worker."""
    probe_timeout_s: Seconds = 2
    """For one health check."""
    failures: Positive = 3
    """Health checks that must fail in a row before a worker gets no more requests; and requests, before it is
    ejected."""
    ejection_s: Seconds = 10
    """For how long it is ejected the first time. Each further time it is twice as long, up to 300 s."""

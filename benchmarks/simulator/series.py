"""What does a worker tell of itself? The series of vLLM's /metrics that gateways and dashboards read."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from benchmarks.simulator.engine import Engine

TTFT_BUCKETS_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)
LABELS = ("model_name", "engine")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Series:
    """Of one worker."""

    def __init__(self, model: str, engine: Engine) -> None:
        self._engine = engine
        self._registry = CollectorRegistry()
        self._values = (model, "0")
        self._gauge("num_requests_running", "Requests in the batch").set_function(lambda: engine.running)
        self._gauge("num_requests_waiting", "Requests in the queue").set_function(lambda: engine.waiting)
        self._gauge("kv_cache_usage_perc", "1 is full").set_function(lambda: engine.kv_usage)
        self._preemptions = self._counter("num_preemptions", "Requests that lost their blocks")
        self._counted = 0  # of them
        self._prompt = self._counter("prompt_tokens", "Of prompts that got a first token")
        self._cached = self._counter("prompt_tokens_cached", "Of them found in the prefix cache")
        self._generated = self._counter("generation_tokens", "Generated")
        name, help_text = "vllm:time_to_first_token_seconds", "Without the way to the caller"
        ttft = Histogram(name, help_text, LABELS, buckets=TTFT_BUCKETS_S, registry=self._registry)
        self._ttft = ttft.labels(*self._values)
        late = "How late the latest token so far was told, in virtual time: the simulator was the bottleneck"
        self._late = Gauge("simulator:late_seconds_max", late, registry=self._registry)
        self._late_s = 0.0

    def first_token(self, prompt_tokens: int, cached_tokens: int, ttft_s: float) -> None:
        self._prompt.inc(prompt_tokens)
        self._cached.inc(cached_tokens)
        self._ttft.observe(ttft_s)

    def told(self, tokens: int, late_s: float) -> None:
        """So many tokens in one go, the oldest of them this late."""
        self._generated.inc(tokens)
        if late_s > self._late_s:
            self._late_s = late_s
            self._late.set(late_s)

    def text(self) -> bytes:
        """In Prometheus' format."""
        self._preemptions.inc(self._engine.preemptions - self._counted)
        self._counted = self._engine.preemptions
        return generate_latest(self._registry)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"vllm:{name}", help_text, LABELS, registry=self._registry).labels(*self._values)

    def _counter(self, name: str, help_text: str) -> Counter:
        return Counter(f"vllm:{name}", help_text, LABELS, registry=self._registry).labels(*self._values)

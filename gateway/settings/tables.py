"""Every setting of the lists: models, workers, tenants and keys. One class a kind of item."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.model import Tenant
from gateway.settings.values import (
    AwareTime,
    Identifier,
    KeyHash,
    ModelChoice,
    ModelName,
    PerDay,
    PerMinute,
    Positive,
    Section,
    VariableName,
    WorkerUrl,
    text,
)


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
    url: WorkerUrl
    """Where `vllm serve` listens."""
    model: ModelName
    """The name of one of [[models]]."""
    max_concurrency: Positive = 256
    """Most requests at once. vLLM batches up to max-num-seqs."""
    api_key_env: VariableName = ""
    """Environment variable that holds the worker's own key (vllm serve --api-key), never the key itself."""


class TenantSettings(Section):
    id: Identifier
    """Its name in metrics and logs."""
    models: list[ModelChoice] = ["*"]
    """Models that it may use, by name or alias."""
    requests_per_minute: PerMinute | None = None
    """Left out: no limit. A minute's worth may come at once, and comes back evenly."""
    tokens_per_minute: PerMinute | None = None
    """Prompt and output tokens. Left out: no limit."""
    requests_per_day: PerDay | None = None
    """Left out: no limit. A day's worth may come at once, and comes back evenly."""
    tokens_per_day: PerDay | None = None
    """The daily budget of prompt and output tokens. Left out: no limit."""
    max_concurrency: Positive | None = None
    """Requests at once, queued ones included. Left out: no limit."""
    max_output_tokens: Positive | None = None
    """Largest maximum of one answer; a larger one is lowered to it. Left out: the model's."""
    allow_logprobs: bool | None = None
    """Left out: as in [intake]."""
    allow_chat_template: bool | None = None
    """Left out: as in [intake]."""
    allow_media_urls: bool | None = None
    """Left out: as in [intake]."""
    cache_group: Annotated[str, text(r"[A-Za-z0-9._-]{0,64}", "up to 64 letters, digits or . _ -")] = ""
    """Tenants of one group share cached prompts, and can tell by timing what another of them asked. Empty:
    shared with nobody."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Its share of the work that is dispatched, beside other tenants that wait."""
    priority: Literal["interactive", "default", "batch"] = "default"
    """Its place in the queue: before or after other tenants. Lower ones still get a small share."""

    def tenant(self) -> Tenant:
        """As the rooms know it."""
        return Tenant(**(dict(self) | {"models": frozenset(self.models)}))


class KeySettings(Section):
    id: Identifier
    """Its name in logs; not secret."""
    tenant: Identifier
    """The id of one of [[tenants]]."""
    sha256: KeyHash
    """Hex SHA-256 of the whole key, never the key itself: gateway keys create prints it."""
    expires_at: AwareTime | None = None
    """From then on it is refused, as 2027-01-31T00:00:00Z. Left out: never."""

"""Callers, models and bodies for the tests of intake."""

import json
from typing import Any

from gateway import settings
from gateway.intake import Intake
from gateway.intake.lengths import Lengths
from gateway.model import Caller, Endpoint, Incoming, Job, Model, Tenant

SALT = "5a" * 32
MODELS = {
    "small": Model("small", max_model_len=2048, default_max_tokens=256),
    "capped": Model("capped", max_model_len=2048, max_output_tokens=100),
    "tight": Model("tight", max_model_len=2048, max_output_tokens=8),
    "short": Model("short", max_model_len=12, default_max_tokens=256),
    "plain": Model("plain", max_model_len=2048),
    "unknown-length": Model("unknown-length"),
}
ALIASES = {"gpt-4o-mini": "small"}


class Models:
    """A catalogue of the models above."""

    def find(self, name: str) -> Model | None:
        return MODELS.get(ALIASES.get(name, name))


def caller(*models: str, id: str = "acme", salt: str = SALT, **tenant: Any) -> Caller:
    """One whose tenant may use these models, or all, and has these further fields."""
    return Caller(Tenant(id, frozenset(models or ("*",)), **tenant), f"{id}-1", salt)


def intake(
    *, bucket_edges: tuple[int, ...] = (1024, 8192), long_from: int = 4096, chains: bool = False, **rules: Any
) -> Intake:
    return Intake(settings.Intake(**rules), Lengths(bucket_edges, long_from), Models(), chains)


def read(
    body: bytes | bytearray,
    endpoint: Endpoint = Endpoint.CHAT,
    *,
    tenant: dict[str, Any] | None = None,
    **rules: Any,
) -> Job:
    """tenant: fields of the caller's. rules: settings of [intake]."""
    return intake(**rules).read(Incoming("req-1", endpoint, {}), body, caller(**(tenant or {})))


def chat(**fields: Any) -> bytes:
    """A chat body: a model, one short message, and `fields`."""
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]} | fields
    return json.dumps(body, ensure_ascii=False).encode()


def completion(**fields: Any) -> bytes:
    return json.dumps({"model": "small", "prompt": "Once"} | fields, ensure_ascii=False).encode()


def read_chat(**fields: Any) -> Job:
    return read(chat(**fields))


def read_completion(**fields: Any) -> Job:
    return read(completion(**fields), Endpoint.COMPLETIONS)


def sent(job: Job) -> bytes:
    """The bytes for the worker."""
    return b"".join(job.body)


def appended(body: bytes, job: Job) -> dict[str, Any]:
    """The members that were added to `body`. Fails where anything else of it was changed."""
    brace = body.rindex(b"}")
    prefix, suffix = body[:brace] + b",", body[brace:]
    whole = sent(job)
    assert whole.startswith(prefix)
    assert whole.endswith(suffix)
    members: dict[str, Any] = json.loads(b"{" + whole[len(prefix) : len(whole) - len(suffix)] + b"}")
    return members

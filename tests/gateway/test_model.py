"""Do the values that pass from room to room say what they mean? And samples of them for the other tests."""

from math import inf
from typing import Any

import pytest

from gateway.model import Caller, Chain, Endpoint, Job, Tenant, Trip, Worker

SALT = "5a" * 32


class Clock:
    """A clock that stands still until a test moves it. In seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def caller(tenant: Tenant | None = None) -> Caller:
    return Caller(tenant or Tenant("acme"), "acme-1", SALT)


def job(tenant: Tenant | None = None, **fields: Any) -> Job:
    """A chat request of 10 prompt tokens and 20 of output, with `fields` in place of that."""
    plain: dict[str, Any] = {
        "id": "req-1",
        "endpoint": Endpoint.CHAT,
        "caller": caller(tenant),
        "model": "small",
        "stream": False,
        "wants_usage": False,
        "prompt_tokens": 10,
        "prompt_bytes": 40,
        "max_output_tokens": 20,
        "max_tokens_given": True,
        "expected_output_tokens": 20,
        "sequences": 1,
        "bucket": 0,
        "is_long": False,
        "body": (b"{}",),
    }
    return Job(**(plain | fields))


def trip(**fields: Any) -> Trip:
    plain: dict[str, Any] = {"id": "req-1", "endpoint": Endpoint.CHAT, "began": 1000.0}
    return Trip(**(plain | fields))


def worker(id: str, in_flight: int = 0, limit: int = 4, **fields: Any) -> Worker:
    """A worker of which nothing more is known than `fields`."""
    return Worker(id, in_flight, limit, **fields)


def test_an_endpoint_knows_its_path_here_and_at_workers() -> None:
    assert {endpoint.path for endpoint in Endpoint} == {"/v1/completions", "/v1/chat/completions"}
    assert Endpoint("chat").path == "/v1/chat/completions"


def test_a_job_counts_prompt_and_output() -> None:
    assert job(prompt_tokens=10, max_output_tokens=20, expected_output_tokens=5).total_tokens == 30


@pytest.mark.parametrize("value", [job(), caller(), Tenant("acme"), worker("w0"), Chain([1], 1, 1)])
def test_what_rooms_share_cannot_be_changed(value: Any) -> None:
    first_field = type(value).__match_args__[0]
    with pytest.raises(AttributeError):
        setattr(value, first_field, "other")


def test_a_job_waits_as_long_as_it_takes_and_has_no_chain_unless_told() -> None:
    assert (job().max_wait_s, job().chain) == (inf, None)


def test_a_tenant_without_settings_has_all_models_and_no_limit() -> None:
    tenant = Tenant("acme")
    assert tenant.models == {"*"}
    assert (tenant.requests_per_minute, tenant.tokens_per_minute, tenant.max_concurrency) == (None,) * 3

"""How much a request may generate: what was asked, defaults, caps, and what is left of the model."""

from typing import Any

import pytest

from gateway.intake.output import COMPLETION_DEFAULT_TOKENS, UNKNOWN_TOKENS
from gateway.model import Endpoint
from tests.gateway.intake.samples import appended, chat, completion, read, read_chat, read_completion

HI_TOKENS = 9  # "Hi" in a chat: 1 token of text, 5 of the message, 3 before the answer


@pytest.mark.parametrize(
    ("fields", "told", "reserved"),
    [
        ({}, {"max_tokens": 256}, 256),
        ({"max_tokens": None}, {"max_tokens": 256}, 256),
        ({"max_completion_tokens": None}, {"max_tokens": 256}, 256),
        ({"max_tokens": 300}, {}, 300),
        ({"max_completion_tokens": 300, "max_tokens": 5}, {}, 300),
        ({"max_tokens": 2048}, {}, 2048 - HI_TOKENS),
        ({"model": "plain"}, {}, 2048 - HI_TOKENS),
        ({"model": "capped"}, {"max_tokens": 100}, 100),
        ({"model": "capped", "max_tokens": 100}, {}, 100),
        ({"model": "capped", "max_tokens": 101}, {"max_tokens": 100}, 100),
        ({"model": "capped", "max_tokens": 9999}, {"max_tokens": 100}, 100),
        ({"model": "capped", "max_completion_tokens": 101}, {"max_completion_tokens": 100}, 100),
        ({"model": "capped", "max_completion_tokens": 50, "max_tokens": 101}, {}, 50),
        ({"model": "short"}, {"max_tokens": 12}, 12 - HI_TOKENS),
        ({"model": "unknown-length"}, {}, UNKNOWN_TOKENS),
        ({"model": "unknown-length", "max_tokens": 5000}, {}, 5000),
        ({"n": 3, "max_tokens": 10}, {}, 30),
    ],
)
def test_the_maximum_of_a_chat(fields: dict[str, Any], told: dict[str, int], reserved: int) -> None:
    body = chat(**fields)
    job = read(body)
    added = appended(body, job)
    assert {name: value for name, value in added.items() if name.startswith("max_")} == told
    assert job.max_output_tokens == reserved


@pytest.mark.parametrize(
    ("fields", "told", "reserved"),
    [
        ({}, {}, 16),
        ({"max_tokens": None}, {}, COMPLETION_DEFAULT_TOKENS),
        ({"max_completion_tokens": 500}, {}, COMPLETION_DEFAULT_TOKENS),
        ({"model": "tight"}, {"max_tokens": 8}, 8),
        ({"model": "tight", "max_tokens": 9}, {"max_tokens": 8}, 8),
        ({"model": "short"}, {"max_tokens": 12}, 11),
        ({"model": "capped"}, {}, COMPLETION_DEFAULT_TOKENS),
        ({"max_tokens": 0, "echo": True}, {}, 1),
        ({"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 10}, {}, 60),
        ({"prompt": [[1] * 2040, [1]], "max_tokens": 100}, {}, 8 + 100),
        ({"prompt": [1] * 2048, "max_tokens": 100}, {}, 1),
        ({"model": "unknown-length", "prompt": ["a", "b"]}, {}, 2 * COMPLETION_DEFAULT_TOKENS),
        ({"model": "unknown-length", "max_tokens": 0, "echo": True}, {}, 1),
    ],
)
def test_the_maximum_of_a_completion(fields: dict[str, Any], told: dict[str, int], reserved: int) -> None:
    body = completion(**fields)
    job = read(body, Endpoint.COMPLETIONS)
    added = appended(body, job)
    assert {name: value for name, value in added.items() if name.startswith("max_")} == told
    assert job.max_output_tokens == reserved


@pytest.mark.parametrize(
    ("fields", "told", "reserved"),
    [
        ({}, {"max_tokens": 50}, 50),
        ({"model": "plain"}, {"max_tokens": 50}, 50),
        ({"max_tokens": 50}, {}, 50),
        ({"max_tokens": 51}, {"max_tokens": 50}, 50),
        ({"max_tokens": 9999}, {"max_tokens": 50}, 50),
        ({"max_completion_tokens": 51}, {"max_completion_tokens": 50}, 50),
        ({"max_tokens": 51, "n": 3}, {"max_tokens": 50}, 150),
        ({"model": "capped", "max_tokens": 70}, {"max_tokens": 50}, 50),
        ({"model": "tight", "max_tokens": 70}, {"max_tokens": 8}, 8),
    ],
)
def test_a_tenant_has_a_cap_of_its_own_beside_the_models(
    fields: dict[str, Any], told: dict[str, int], reserved: int
) -> None:
    body = chat(**fields)
    job = read(body, tenant={"max_output_tokens": 50})
    added = appended(body, job)
    assert {name: value for name, value in added.items() if name.startswith("max_")} == told
    assert job.max_output_tokens == reserved


def test_a_tenants_cap_lowers_what_a_completion_gets_by_default() -> None:
    body = completion()
    job = read(body, Endpoint.COMPLETIONS, tenant={"max_output_tokens": 5})
    assert (appended(body, job)["max_tokens"], job.max_output_tokens) == (5, 5)


def test_a_maximum_counts_as_given_only_where_the_caller_named_it() -> None:
    assert read_chat(max_tokens=5).max_tokens_given
    assert read_chat(max_completion_tokens=5).max_tokens_given
    assert read_chat(model="capped", max_tokens=500).max_tokens_given
    assert not read_chat(max_tokens=None).max_tokens_given
    assert not read_completion().max_tokens_given
    assert not read_completion(max_completion_tokens=5).max_tokens_given

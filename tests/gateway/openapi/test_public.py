"""Does the public port's document say what there is and what is read, all of it and nothing else?"""

import pytest
from msgspec import Struct
from openapi_spec_validator import validate

from gateway.intake.schema import ChatBody, CompletionBody, Message
from gateway.openapi import public_document
from gateway.openapi.public import ERASED, REFUSED

DOCUMENT = public_document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_the_document_is_one_by_the_standard() -> None:
    validate(DOCUMENT)


@pytest.mark.parametrize(("name", "body"), [("ChatRequest", ChatBody), ("CompletionRequest", CompletionBody)])
def test_a_field_that_is_read_is_told_with_what_becomes_of_it(name: str, body: type[Struct]) -> None:
    read = set(body.__struct_fields__) | {"cache_salt"}  # set unread
    properties = SCHEMAS[name]["properties"].keys()
    assert properties <= read
    assert read - properties <= {*ERASED, *REFUSED}
    assert not properties & {*ERASED, *REFUSED}


def test_what_is_erased_or_refused_is_read() -> None:
    read = {*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__, "cache_salt"}
    assert {*ERASED, *REFUSED} <= read


def test_a_messages_fields_are_read() -> None:
    assert SCHEMAS["Message"]["properties"].keys() <= set(Message.__struct_fields__)


def test_fields_that_are_not_told_may_be_sent() -> None:
    assert not any("additionalProperties" in schema for schema in SCHEMAS.values())


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_some_pages_need_no_key(path: str) -> None:
    assert DOCUMENT["paths"][path]["get"]["security"] == []


def test_all_else_needs_one() -> None:
    paths = DOCUMENT["paths"]
    with_key = {
        path for path, methods in paths.items() if not any("security" in of for of in methods.values())
    }
    assert with_key == {"/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{name}"}
    assert DOCUMENT["security"] == [{"key": []}]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_every_status_and_header_of_a_completion_is_told(path: str) -> None:
    responses = DOCUMENT["paths"][path]["post"]["responses"]
    statuses = "200 400 401 403 404 408 413 415 429 4XX 500 502 503 504"
    assert sorted(responses) == statuses.split()
    assert responses["200"]["content"].keys() == {"application/json", "text/event-stream"}
    limits = {
        f"x-ratelimit-{what}-{kind}"
        for what in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    } | {"x-gateway-degraded"}
    work = {"x-gateway-worker", "x-gateway-bucket", "x-gateway-queue-ms"}
    assert responses["200"]["headers"].keys() == {
        *limits, *work, "x-request-id", "openai-processing-ms", "cache-control", "x-accel-buffering",
    }  # fmt: skip
    assert responses["503"]["headers"].keys() > limits | {"retry-after", "retry-after-ms"}

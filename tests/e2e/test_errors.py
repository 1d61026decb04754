"""Does every path answer as OpenAI would, with a status, an id, headers and an error object?"""

import json
import logging
from typing import Any

import pytest

from gateway.fleet import Catalogue
from tests.conftest import KEY, MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.observed import NOWHERE, TENANT, observed
from tests.fakes import FakeWorker, answer_of

pytestmark = pytest.mark.usefixtures("either_lane")

SECRET = "a secret of 10.0.0.7"


async def test_a_bug_of_the_gateway_becomes_500_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Catalogue, "find", stumble)
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.http() as client:
        answer = await client.post(COMPLETIONS, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert "10.0.0.7" not in f"{answer.headers}{answer.text}"
        await gateway.idle()
        [line] = gateway.log_lines()
        assert line["outcome"] == "internal_error"
        assert await gateway.metric("gateway_requests_total", outcome="internal_error") == 1
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert answer.headers["x-request-id"] in record.getMessage()
    assert record.exc_info


PATHS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("POST", COMPLETIONS, "200", {"json": QUESTION}),
    ("POST", COMPLETIONS, "200", {"json": STREAMED}),
    ("POST", COMPLETIONS, "invalid_json", {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("POST", COMPLETIONS, "invalid_api_key", {"json": QUESTION, "headers": {"authorization": "Bearer no"}}),
    ("POST", COMPLETIONS, "model_not_found", {"json": {**QUESTION, "model": "no"}}),
    ("POST", COMPLETIONS, "model_not_allowed", {"json": {**QUESTION, "model": "other"}}),
    ("POST", COMPLETIONS, "unsupported_media_type", {"content": b"{}"}),
    ("POST", COMPLETIONS, "body_too_large", {"json": {"prompt": "x" * 3000}}),
    ("GET", COMPLETIONS, "method_not_allowed", {}),
    ("GET", "/v1/models", "200", {}),
    ("GET", f"/v1/models/{MODEL}", "200", {}),
    ("GET", "/v1/models/no", "model_not_found", {}),
    ("DELETE", "/v1/models", "method_not_allowed", {}),
    ("GET", "/health", "200", {}),
    ("GET", "/ready", "200", {}),
    ("GET", "/nowhere", "not_found", {}),
]
STATUS = {
    "200": 200, "invalid_json": 400, "invalid_api_key": 401, "model_not_allowed": 403, "model_not_found": 404,
    "not_found": 404, "method_not_allowed": 405, "body_too_large": 413, "unsupported_media_type": 415,
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "code", "more"), PATHS)
async def test_every_path_answers_with_its_status_an_id_and_an_error_object(
    method: str, path: str, code: str, more: dict[str, Any]
) -> None:
    async with (
        FakeWorker() as worker,
        observed(
            worker,
            server={"max_body_bytes": 2048},
            models=[{"name": MODEL}, {"name": "other"}],
            workers=[
                {"id": "w0", "url": worker.url, "model": MODEL},
                {"id": "w1", "url": NOWHERE, "model": "other"},
            ],
            tenants=[{**TENANT, "models": [MODEL]}],
        ) as gateway,
        gateway.http() as client,
    ):
        answer = await client.request(method, path, **more)
        assert answer.status_code == STATUS[code]
        assert len(answer.headers["x-request-id"]) == 32
        if code != "200":
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["code"] == code
            assert error["type"] in ("invalid_request_error", "permission_denied")
            assert error["message"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("my-id_1.2", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("x" * 10_000, False),
        ("a b", False),
        ("a%0d%0aset-cookie:x", False),
        ("", False),
    ],
)
async def test_a_caller_s_request_id_is_kept_if_it_is_harmless(sent: str, kept: bool) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.http() as client:
        answer = await client.post(COMPLETIONS, json=QUESTION, headers={"x-request-id": sent})
        told = answer.headers["x-request-id"]
        assert (told == sent) is kept
        assert worker.requests[0].headers["x-request-id"] == told
        await gateway.idle()
        assert [line["request_id"] for line in gateway.log_lines()] == [told]


async def test_what_is_not_http_is_refused_as_json_with_an_id() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.say(b"HELLO THERE\r\n\r\n")
        status, headers, body = await caller.answer()
        assert status == 400
        assert json.loads(body)["error"]["code"] == "invalid_http"
        assert headers["x-request-id"]
        assert await caller.rest() == b""


async def test_a_head_without_end_is_refused() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.say(b"POST /v1/completions HTTP/1.1\r\nx-filler: " + b"x" * 70_000)
        status, _, body = await caller.answer()
        assert (status, json.loads(body)["error"]["code"]) == (431, "head_too_large")


@pytest.mark.parametrize("begun", [b"", b"POST /v1/completions HTT"], ids=["silent", "half a head"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(begun: bytes) -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, server={"header_timeout_s": 0.2}) as gateway,
        Caller(gateway.url) as caller,
    ):
        caller.say(begun)
        answer = await caller.rest()
        assert answer.startswith(b"HTTP/1.1 408 ") if begun else answer == b""


async def test_completion_answers_carry_every_header_of_the_contract() -> None:
    async with FakeWorker(answer_of(3)) as worker, observed(worker) as gateway, gateway.http() as client:
        plain = await client.post(COMPLETIONS, json=QUESTION)
        streamed = await client.post(COMPLETIONS, json=STREAMED)
        refused = await client.post(COMPLETIONS, json={**QUESTION, "n": 99})
    for answer in (plain, streamed, refused):
        for kind, limit in (("requests", 1000), ("tokens", 100_000)):
            assert int(answer.headers[f"x-ratelimit-limit-{kind}"]) == limit
            assert 0 < int(answer.headers[f"x-ratelimit-remaining-{kind}"]) <= limit
            assert answer.headers[f"x-ratelimit-reset-{kind}"].endswith("s")
        assert answer.headers["openai-processing-ms"].isdigit()
    for answer in (plain, streamed):
        assert answer.headers["x-gateway-worker"] == "w0"
        assert answer.headers["x-gateway-bucket"] == "0"
        assert answer.headers["x-gateway-queue-ms"].isdigit()
    assert plain.headers["content-type"] == "application/json"
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert (streamed.headers["cache-control"], streamed.headers["x-accel-buffering"]) == ("no-cache", "no")


async def test_a_limit_that_a_tenant_has_not_is_not_told() -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, tenants=[{"id": "acme"}]) as gateway,
        gateway.http(KEY) as client,
    ):
        headers = (await client.post(COMPLETIONS, json=QUESTION)).headers
        assert not [name for name in headers if name.startswith("x-ratelimit")]

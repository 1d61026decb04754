"""Does a caller hear of every failure as OpenAI would tell it, and of nothing that is not its business?"""

import json
import logging
from typing import Any

import pytest

from gateway.intake import Intake
from tests.conftest import KEY, MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller
from tests.e2e.observed import NOWHERE, STEADY_PROBES, TENANT, observed
from tests.fakes import FakeWorker, Received, Reply, Script, answer_of, response_head

EITHER = pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
BODIES = [
    ("application/json", b'{ "error" : {"message":"no",  "type":"BadRequestError", "x": [1] ,"code":400}}\n'),
    ("application/json", b""),
    ("text/plain; charset=utf-8", "Néin".encode()),
]
SECRET = "http://10.0.0.7:8000/Traceback/site-packages"
INTERNALS = ("127.0.0.1", "10.0.0.7", "traceback", "site-packages", "uvloop", "httptools", "errno", ".py")


def answering(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        length = str(len(body))
        head = {"content-type": content_type, "content-length": length, **headers}
        await reply.send(response_head(status, head) + body)

    return script


def first_event(payload: bytes) -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(payload)
        await reply.done()

    return script


async def reset(request: Received, reply: Reply) -> None:
    reply.reset()


async def head_then_reset(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    reply.reset()


async def head_then_end(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.send(b"0\r\n\r\n")


async def silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def head_then_silence(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


async def not_http(request: Received, reply: Reply) -> None:
    await reply.send(b"SSH-2.0-OpenSSH_9.6\r\n")


@EITHER
@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429])
async def test_a_worker_s_own_refusal_arrives_byte_for_byte(body: object, status: int) -> None:
    scripts = [answering(status, content, kind) for kind, content in BODIES]
    async with FakeWorker(scripts) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            for kind, content in BODIES:
                answer = await client.post(COMPLETIONS, json=body)
                assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
                assert answer.content == content
        await gateway.ended(*["worker_refused"] * 3, requests=0, tokens=0)
        assert len(worker.requests) == 3
        assert await gateway.metric("gateway_worker_failures_total") == 0


async def test_a_worker_s_own_retry_after_arrives() -> None:
    busy = answering(429, b"{}", **{"retry-after": "7"})
    async with FakeWorker(busy) as worker, observed(worker) as gateway, gateway.http() as client:
        assert (await client.post(COMPLETIONS, json=QUESTION)).headers["retry-after"] == "7"


@EITHER
@pytest.mark.parametrize("status", [301, 304, 307, 500, 501, 502, 504])
async def test_a_worker_s_own_failure_becomes_502_and_is_told_to_the_log_only(
    body: object, status: int
) -> None:
    content = b"" if status == 304 else json.dumps({"error": {"message": SECRET}}).encode()
    failing = answering(status, content, location=SECRET, **{"set-cookie": "worker=1"})
    async with FakeWorker(failing) as worker, FakeWorker() as other, observed(worker, other) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "worker_failed"
        assert answer.headers["content-type"] == "application/json"
        assert "10.0.0.7" not in f"{answer.headers}{answer.text}"
        assert not {"location", "set-cookie"} & answer.headers.keys()
        [line] = await gateway.ended("worker_failed", requests=0, tokens=0)
        assert str(status) in line["detail"]
        assert SECRET in line["detail"] or status == 304
        assert (len(worker.requests), len(other.requests)) == (1, 0)
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="failed") == 1


@EITHER
async def test_a_busy_worker_becomes_503_that_says_when_to_come_back(body: object) -> None:
    async with FakeWorker(answering(503, b'{"error":"scaling"}')) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.headers["retry-after-ms"].isdigit()
        [line] = await gateway.ended("server_is_overloaded", requests=0, tokens=0)
        assert "scaling" in line["detail"]
        assert len(worker.requests) == 1


@EITHER
@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_that_a_worker_refuses_are_the_gateway_s_fault(body: object, status: int) -> None:
    async with (
        FakeWorker(answering(status, b'{"error":"Unauthorized"}')) as worker,
        observed(worker) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_refused_credentials")
        [line] = await gateway.ended("worker_refused_credentials", requests=0, tokens=0)
        assert str(status) in line["detail"]
        assert await gateway.metric("gateway_worker_failures_total", worker="w0", kind="credentials") == 1


@pytest.mark.parametrize("status", [400, 404, 429])
async def test_a_refusal_in_the_first_event_becomes_a_real_status(status: int) -> None:
    payload = b'{"error": {"message": "bad grammar", "type": "BadRequestError", "code": %d}}' % status
    async with FakeWorker(first_event(payload)) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert (answer.status_code, answer.content) == (status, payload)
        assert answer.headers["content-type"] == "application/json"
        await gateway.ended("worker_refused", requests=0, tokens=0)
        assert len(worker.requests) == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": SECRET, "code": 500}, 502, "worker_failed"),
        ({"message": SECRET, "code": 503}, 503, "server_is_overloaded"),
        ({"message": SECRET, "code": "odd"}, 502, "worker_failed"),
        ({"message": SECRET}, 502, "worker_failed"),
        (SECRET, 502, "worker_failed"),
    ],
    ids=["500", "503", "a word for a code", "no code", "no object"],
)
async def test_a_failure_in_the_first_event_becomes_a_real_status(
    error: object, status: int, code: str
) -> None:
    payload = json.dumps({"error": error}).encode()
    async with FakeWorker(first_event(payload)) as worker, observed(worker) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert "10.0.0.7" not in answer.text
        [line] = await gateway.ended(code, requests=0, tokens=0)
        assert SECRET in line["detail"]
        assert len(worker.requests) == 1


@pytest.mark.parametrize(
    ("script", "body", "code"),
    [
        (reset, QUESTION, "worker_failed"),
        (reset, STREAMED, "worker_failed"),
        (head_then_reset, STREAMED, "worker_failed"),
        (head_then_end, STREAMED, "worker_failed"),
        (not_http, QUESTION, "worker_failed"),
        (silent, QUESTION, "worker_timeout"),
        (silent, STREAMED, "worker_timeout"),
        (head_then_silence, STREAMED, "worker_timeout"),
    ],
)
async def test_a_worker_that_fails_before_the_first_byte_is_not_asked_again_and_costs_nothing(
    script: Script, body: object, code: str
) -> None:
    hasty = {"first_byte_timeout_s": 0.2, "gap_timeout_s": 0.2}
    async with (
        FakeWorker(script) as worker,
        FakeWorker() as other,
        observed(worker, other, upstream=hasty) as gateway,
    ):
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=body)
        assert answer.json()["error"]["code"] == code
        assert answer.status_code == {"worker_failed": 502, "worker_timeout": 504}[code]
        assert answer.headers.get("x-should-retry") == ("false" if code == "worker_timeout" else None)
        if code == "worker_timeout":
            await worker.closed_by_peer(1)
        [line] = await gateway.ended(code, requests=0, tokens=0)
        assert line["status"] == answer.status_code
        assert (len(worker.requests), len(other.requests)) == (1, 0)
        kind = {"worker_failed": ("broke", "failed"), "worker_timeout": ("timeout",)}[code]
        failures = [await gateway.metric("gateway_worker_failures_total", kind=of) for of in kind]
        assert sum(failures) == 1


async def test_replies_tell_no_internals_and_their_id_finds_the_whole_story() -> None:
    async def half_a_stream(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"index": 0, "text": "a"}]})
        reply.close()

    scripts = [reset, head_then_end, not_http, silent, answering(307, b"", location=SECRET), half_a_stream]
    async with (
        FakeWorker(scripts) as worker,
        observed(worker, fleet=STEADY_PROBES, upstream={"first_byte_timeout_s": 0.2}) as gateway,
    ):
        async with gateway.http() as client:
            answers = [await client.post(COMPLETIONS, json=STREAMED) for _ in scripts]
            await worker.stop()
            answers.append(await client.post(COMPLETIONS, json=STREAMED))
        await gateway.idle()
        lines = {line["request_id"]: line for line in gateway.log_lines()}
        assert len(lines) == len(scripts) + 1
        for answer in answers:
            told = f"{answer.headers}{answer.text}".lower()
            assert not [word for word in (*INTERNALS, str(worker.port)) if word in told]
            assert "error" in answer.text
            assert lines[answer.headers["x-request-id"]]["detail"]


async def test_a_bug_of_the_gateway_becomes_500_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Intake, "read", stumble)
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

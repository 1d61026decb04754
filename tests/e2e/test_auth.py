"""Does nobody without a key get in, by whatever path, and does no key ever get out?"""

import hashlib
import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.configuration import parse
from tests import conftest
from tests.conftest import KEY, MODEL, sha256
from tests.e2e.callers import CHAT, COMPLETIONS, QUESTION, STREAMED, Caller, head_of
from tests.e2e.observed import NOWHERE, TENANT, observed
from tests.fakes import FakeWorker, Received, Reply, compact

pytestmark = pytest.mark.usefixtures("either_lane")

CONTENT = compact(QUESTION)
GET_MODELS = "/v1/models"
EXPIRED = "sk-expired-0123456789abcdefghijklmnopqrstuvwxyz"
KEYS = [
    {"id": "acme-1", "tenant": "acme", "sha256": sha256(KEY)},
    {
        "id": "acme-0",
        "tenant": "acme",
        "sha256": sha256(EXPIRED),
        "expires_at": datetime(2020, 1, 1, tzinfo=UTC),
    },
]


def request_with(*authorizations: bytes, path: str = COMPLETIONS, method: str = "POST") -> bytes:
    """A request whose only credentials are these header values."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"host: gateway", b"content-type: application/json"]
    lines += [b"authorization: " + value for value in authorizations]
    return b"\r\n".join([*lines, b"content-length: %d" % len(CONTENT), b"", b""]) + CONTENT


ODD: dict[str, list[bytes]] = {
    "none": [],
    "empty": [b""],
    "scheme alone": [b"Bearer"],
    "scheme and a blank": [b"Bearer "],
    "two blanks": [b"Bearer  "],
    "unknown": [b"Bearer x"],
    "expired": [b"Bearer " + EXPIRED.encode()],
    "key alone": [KEY.encode()],
    "Basic": [b"Basic " + KEY.encode()],
    "one character more": [b"Bearer " + KEY.encode() + b"x"],
    "one character less": [b"Bearer " + KEY.encode()[:-1]],
    "the hash instead": [b"Bearer " + sha256(KEY).encode()],
    "twice": [b"Bearer " + KEY.encode()] * 2,
    "known and unknown": [b"Bearer " + KEY.encode(), b"Bearer x"],
    "two in one": [b"Bearer " + KEY.encode() + b", Bearer x"],
    "not ASCII": ["Bearer schlüssel".encode()],
    "not UTF-8": [b"Bearer \xff\xfe"],
    "long": [b"Bearer " + b"x" * 60_000],
}


async def test_every_odd_credential_gets_the_same_401() -> None:
    async with FakeWorker() as worker, observed(worker, keys=KEYS) as gateway:
        bodies = set()
        for name, values in ODD.items():
            for path, method in ((COMPLETIONS, "POST"), (CHAT, "POST"), (GET_MODELS, "GET")):
                async with Caller(gateway.url) as caller:
                    caller.say(request_with(*values, path=path, method=method))
                    status, headers, body = await caller.answer()
                assert status == 401, name
                assert (headers["www-authenticate"], len(headers["x-request-id"])) == ("Bearer", 32)
                assert not [header for header in headers if header.startswith("x-ratelimit")]
                bodies.add(body)
        assert len(bodies) == 1
        assert json.loads(bodies.pop())["error"]["code"] == "invalid_api_key"
        await gateway.ended(*["invalid_api_key"] * 2 * len(ODD), requests=0, tokens=0)
        assert worker.requests == []


async def test_a_credential_of_a_megabyte_is_refused() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.say(request_with(b"Bearer " + b"x" * 1_000_000))
        status, _, body = await caller.answer()
        assert (status, json.loads(body)["error"]["code"]) == (431, "head_too_large")
        assert worker.requests == []


async def test_a_key_in_the_query_opens_nothing() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.http(None) as client:
        answer = await client.post(f"{COMPLETIONS}?api_key={KEY}", json=QUESTION)
        assert answer.status_code == 401
        assert worker.requests == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_s_case_does_not_matter(scheme: str) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(QUESTION, headers={"authorization": f"{scheme} {KEY}"})
        assert (await caller.answer())[0] == 200


TRICKS = [
    "//v1/chat/completions", "/v1//chat/completions", "/V1/chat/completions", "/v1/%63hat/completions",
    "/v1/chat/completions/", "/v1/chat/completions;x", "/v1/./chat/completions", "/x/../v1/completions",
    "/v1/chat/completions%00", "/v1/chat%2fcompletions", "/chat/completions", "/v1/completions/x", "/v1",
]  # fmt: skip
UNLISTED = [
    "/invocations", "/tokenize", "/detokenize", "/inference/v1/generate", "/v1/responses", "/v1/embeddings",
    "/v1/messages", "/v1/chat/completions/batch", "/v1/load_lora_adapter", "/metrics", "/load", "/version",
    "/docs", "/openapi.json", "/ping", "/sleep", "/collective_rpc", "/admin/keys", "/",
]  # fmt: skip


@pytest.mark.parametrize("key", [KEY, "no"], ids=["with a key", "without"])
async def test_paths_that_are_not_listed_exactly_do_not_exist(key: str) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        for method in ("POST", "GET"):
            for path in [*TRICKS, *UNLISTED]:
                async with Caller(gateway.url) as caller:
                    credentials = {"authorization": f"Bearer {key}", "content-length": str(len(CONTENT))}
                    caller.say(head_of(path, credentials, method) + CONTENT)
                    status, _, body = await caller.answer()
                assert status == 404, path
                assert json.loads(body)["error"]["code"] == "not_found"
        assert worker.requests == []


@pytest.mark.parametrize("target", ["http://evil/v1/completions", "http://127.0.0.1:1/v1/completions?x=1"])
async def test_a_target_in_absolute_form_needs_a_key_and_leads_nowhere_else(target: str) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway:
        async with Caller(gateway.url) as caller:
            caller.say(request_with(path=target))
            assert (await caller.answer())[0] == 401
        async with Caller(gateway.url) as caller:
            caller.ask(QUESTION, target)
            assert (await caller.answer())[0] == 200
        assert [request.target for request in worker.requests] == [COMPLETIONS]


async def test_a_model_that_a_tenant_may_not_use_is_refused_without_telling_of_others() -> None:
    models = [{"name": MODEL, "aliases": ["small"]}, {"name": "secret-model"}]
    async with (
        FakeWorker() as worker,
        observed(
            worker,
            models=models,
            workers=[
                {"id": "w0", "url": worker.url, "model": MODEL},
                {"id": "w1", "url": NOWHERE, "model": "secret-model"},
            ],
            tenants=[{**TENANT, "models": [MODEL]}],
        ) as gateway,
    ):
        async with gateway.http() as client:
            refused = await client.post(COMPLETIONS, json={**QUESTION, "model": "secret-model"})
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["param"]) == (403, "model_not_allowed", "model")
            assert error["type"] == "permission_denied"
            assert MODEL not in error["message"]
            assert (await client.post(COMPLETIONS, json={**QUESTION, "model": "small"})).status_code == 200
            listed = [card["id"] for card in (await client.get(GET_MODELS)).json()["data"]]
            assert listed == [MODEL, "small"]
            assert (await client.get(f"{GET_MODELS}/secret-model")).status_code == 404
        await gateway.ended("ok", "model_not_allowed", requests=1, tokens=15)


async def test_no_key_and_no_prompt_is_ever_told_or_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "sk-canary-unknown-0123456789abcdef"
    worker_key = "sk-canary-of-the-worker"
    environ = {"CANARY_WORKER_KEY": worker_key}
    monkeypatch.setenv("CANARY_WORKER_KEY", worker_key)
    monkeypatch.setattr(conftest, "parse", lambda config, _: parse(config, environ))
    secrets = [KEY, canary, worker_key, "canary-prompt"]
    secrets += [hashlib.sha256(secret.encode()).hexdigest() for secret in (KEY, canary)]

    async def fail(request: Received, reply: Reply) -> None:
        assert request.headers.pop("authorization") == f"Bearer {worker_key}"
        await reply.json({"error": {"message": json.dumps(request.headers), "code": 500}}, 500)

    def stumble(*_: object) -> None:
        raise RuntimeError("a bug")

    told: list[str] = []
    bodies: list[dict[str, Any]] = [
        {**QUESTION, "prompt": "canary-prompt"},
        {**STREAMED, "prompt": "canary-prompt"},
        {**QUESTION, "prompt": "canary-prompt", "n": 99},
        {**QUESTION, "model": "no", "prompt": "canary-prompt"},
    ]
    caplog.set_level(logging.DEBUG)
    async with FakeWorker(fail) as worker:
        workers = [{"id": "w0", "url": worker.url, "model": MODEL, "api_key_env": "CANARY_WORKER_KEY"}]
        async with observed(worker, workers=workers) as gateway:
            for key in (KEY, canary):
                async with gateway.http(key) as client:
                    answers = [await client.post(COMPLETIONS, json=body) for body in bodies]
                    answers.append(await client.post(COMPLETIONS, content=b'{"prompt":"canary-prompt'))
                    answers.append(await client.get(f"/nowhere?key={key}"))
                    told += [f"{answer.headers}{answer.text}" for answer in answers]
            with monkeypatch.context() as patch:
                patch.setattr("gateway.fleet.Catalogue.find", stumble)
                async with gateway.http() as client:
                    broken = await client.post(COMPLETIONS, json=bodies[0])
                    assert broken.status_code == 500
                    told.append(f"{broken.headers}{broken.text}")
            told += [await gateway.metrics(), json.dumps(await gateway.idle_lines())]
    told += [
        record.getMessage() + str(record.exc_info) for record in caplog.records if "gateway" in record.name
    ]
    assert not [secret for secret in secrets for text in told if secret in text]

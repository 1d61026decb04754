"""Is each tenant served by its own rules, beside others with theirs, and does the worker see them kept?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import MODEL, Served, configuration, served, sha256
from tests.e2e.callers import CHAT, COMPLETIONS, QUESTION
from tests.fakes import FakeWorker

pytestmark = pytest.mark.usefixtures("either_lane")

MESSAGES: Any = [{"role": "user", "content": "hi"}]
ASKED: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
WEB, DATA = "http://127.0.0.1:9/cat.png", "data:image/png;base64,iVBORw0KGgo="


def key_of(tenant: str) -> str:
    return f"sk-test-{tenant}-0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass
class House:
    """A gateway with one worker and several tenants, each of which has one key."""

    gateway: Served
    worker: FakeWorker

    async def ask(self, tenant: str, path: str, body: object) -> httpx.Response:
        async with self.gateway.http(key_of(tenant)) as client:
            return await client.post(path, json=body)

    async def reached(self, tenant: str, path: str, body: object) -> Any:
        """What the worker was sent of a request that is taken."""
        before = len(self.worker.requests)
        assert (await self.ask(tenant, path, body)).status_code == 200
        [request] = self.worker.requests[before:]
        return request.json()

    async def refused(self, tenant: str, path: str, body: object) -> tuple[int, str, str | None]:
        """Status, code and param of a request that no worker sees."""
        before = len(self.worker.requests)
        answer = await self.ask(tenant, path, body)
        assert len(self.worker.requests) == before
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["param"]


@asynccontextmanager
async def house(*tenants: dict[str, Any], **sections: Any) -> AsyncIterator[House]:
    keys = [{"id": f"{of['id']}-1", "tenant": of["id"], "sha256": sha256(key_of(of["id"]))} for of in tenants]
    async with (
        FakeWorker() as worker,
        served(configuration(worker, tenants=list(tenants), keys=keys, **sections)) as gateway,
    ):
        yield House(gateway, worker)


# Models


async def test_each_tenant_has_its_own_models_by_name_or_alias() -> None:
    models = [{"name": MODEL, "aliases": ["small", "tiny"]}]
    tenants: list[dict[str, Any]] = [
        {"id": "by-name", "models": [MODEL]},
        {"id": "by-alias", "models": ["small"]},
        {"id": "none", "models": []},
        {"id": "all"},
    ]
    allowed = {
        "by-name": {MODEL, "small", "tiny"},
        "by-alias": {"small"},
        "none": set(),
        "all": {MODEL, "small", "tiny"},
    }
    async with house(*tenants, models=models) as of:
        for tenant, names in allowed.items():
            for name in (MODEL, "small", "tiny"):
                body = {**QUESTION, "model": name}
                if name in names:
                    assert (await of.reached(tenant, COMPLETIONS, body))["model"] == MODEL
                else:
                    refusal = await of.refused(tenant, COMPLETIONS, body)
                    assert refusal == (403, "model_not_allowed", "model")
            async with of.gateway.http(key_of(tenant)) as client:
                listed = {card["id"] for card in (await client.get("/v1/models")).json()["data"]}
            assert listed == names


# Output


async def test_a_maximum_above_the_tenants_is_lowered_and_the_worker_is_told() -> None:
    tenants: list[dict[str, Any]] = [
        {"id": "short", "max_output_tokens": 5},
        {"id": "long", "max_output_tokens": 1000},
        {"id": "any"},
    ]
    models = [{"name": MODEL, "max_model_len": 2048, "default_max_tokens": 256, "max_output_tokens": 500}]
    async with house(*tenants, models=models) as of:
        for tenant, most in (("short", 5), ("long", 500), ("any", 500)):
            for field in ("max_tokens", "max_completion_tokens"):
                sent = await of.reached(tenant, CHAT, {**ASKED, field: 700})
                assert sent[field] == most
            assert (await of.reached(tenant, CHAT, ASKED))["max_tokens"] == min(most, 256)
            assert (await of.reached(tenant, CHAT, {**ASKED, "max_tokens": 3}))["max_tokens"] == 3
            assert (await of.reached(tenant, COMPLETIONS, {**QUESTION, "max_tokens": 9}))[
                "max_tokens"
            ] == min(most, 9)


async def test_what_is_reserved_is_the_lowered_maximum() -> None:
    tenant = {"id": "short", "max_output_tokens": 5, "tokens_per_minute": 20}
    async with house(tenant) as of:
        answer = await of.ask("short", COMPLETIONS, {**QUESTION, "max_tokens": 1500})
        assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 5)


# What a request may hold


def picture(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {**ASKED, "messages": [{"role": "user", "content": [part]}]}


RULES = [
    ("allow_media_urls", CHAT, picture(WEB), "media_url_not_allowed", "messages[0].content[0].image_url"),
    ("allow_logprobs", CHAT, {**ASKED, "logprobs": True}, "unsupported_parameter", "logprobs"),
    (
        "allow_logprobs",
        CHAT,
        {**ASKED, "logprobs": True, "top_logprobs": 2},
        "unsupported_parameter",
        "logprobs",
    ),
    ("allow_logprobs", COMPLETIONS, {**QUESTION, "logprobs": 0}, "unsupported_parameter", "logprobs"),
    (
        "allow_chat_template",
        CHAT,
        {**ASKED, "chat_template_kwargs": {"chat_template": "x"}},
        "unsupported_parameter",
        "chat_template_kwargs.chat_template",
    ),
]


@pytest.mark.parametrize("general", [True, False], ids=["usually allowed", "usually not"])
@pytest.mark.parametrize(("rule", "path", "body", "code", "param"), RULES)
async def test_a_tenants_own_permission_goes_before_the_general_one(
    rule: str, path: str, body: dict[str, Any], code: str, param: str, general: bool
) -> None:
    tenants: list[dict[str, Any]] = [
        {"id": "may", rule: True},
        {"id": "may-not", rule: False},
        {"id": "as-usual"},
    ]
    async with house(*tenants, intake={rule: general}) as of:
        for tenant in ("may", "as-usual") if general else ("may",):
            sent = await of.reached(tenant, path, body)
            assert {name: sent[name] for name in body} == body
        for tenant in ("may-not",) if general else ("may-not", "as-usual"):
            assert await of.refused(tenant, path, body) == (400, code, param)


async def test_a_template_of_the_callers_own_reaches_the_worker_for_those_alone_who_may_send_one() -> None:
    tenants: list[dict[str, Any]] = [
        {"id": "may", "allow_chat_template": True},
        {"id": "may-not", "allow_chat_template": False},
    ]
    body = {**ASKED, "chat_template": "{{ messages }}"}
    async with house(*tenants) as of:
        assert (await of.reached("may", CHAT, body))["chat_template"] == "{{ messages }}"
        assert (await of.reached("may-not", CHAT, body))["chat_template"] is None


async def test_media_within_the_request_and_text_are_for_everyone() -> None:
    async with house({"id": "may-not", "allow_media_urls": False, "allow_logprobs": False}) as of:
        await of.reached("may-not", CHAT, picture(DATA))
        await of.reached("may-not", CHAT, {**ASKED, "logprobs": False})
        await of.reached("may-not", COMPLETIONS, QUESTION)


# Caches


async def test_prompts_are_cached_together_within_a_group_and_apart_otherwise(redis_url: str) -> None:
    tenants: list[dict[str, Any]] = [
        {"id": "one", "cache_group": "friends"},
        {"id": "two", "cache_group": "friends"},
        {"id": "three", "cache_group": "others"},
        {"id": "friends"},
        {"id": "alone"},
    ]
    sections = {"store": {"url": redis_url}, "auth": {"cache_salt_secret": "the same everywhere"}}
    salts: dict[str, str] = {}
    async with house(*tenants, **sections) as of, house(*tenants, **sections) as replica:
        for tenant in ("one", "two", "three", "friends", "alone"):
            forged = {**QUESTION, "cache_salt": "of another"}
            bodies = [(COMPLETIONS, QUESTION), (COMPLETIONS, forged), (CHAT, ASKED)]
            sent = [await each.reached(tenant, path, body) for each in (of, replica) for path, body in bodies]
            [salts[tenant]] = {request["cache_salt"] for request in sent}
    assert salts["one"] == salts["two"]
    assert len(set(salts.values())) == 4


# Budgets


async def test_a_daily_budget_that_is_used_up_is_told_as_such_and_the_sdk_does_not_try_again() -> None:
    tenants: list[dict[str, Any]] = [
        {"id": "spent", "tokens_per_day": 40},
        {"id": "other", "tokens_per_day": 40},
    ]
    async with house(*tenants) as of, of.gateway.client(key_of("spent"), max_retries=2) as client:
        for _ in range(2):
            await client.completions.create(**QUESTION)
        with pytest.raises(openai.RateLimitError) as refusal:
            await client.completions.create(**QUESTION)
        response = refusal.value.response
        assert (refusal.value.code, refusal.value.type) == ("insufficient_quota", "insufficient_quota")
        assert response.headers["x-should-retry"] == "false"
        assert response.headers["retry-after"] == "60", "the most that may be told"
        assert response.headers["x-ratelimit-limit-tokens"] == "40"
        assert response.headers["x-ratelimit-remaining-tokens"] == "10"
        await of.gateway.idle()
        outcomes = [line["outcome"] for line in of.gateway.log_lines()]
        assert outcomes == ["ok", "ok", "insufficient_quota"], "it was not tried again"
        assert len(of.worker.requests) == 2
        await of.reached("other", COMPLETIONS, QUESTION)
        smaller = {**QUESTION, "max_tokens": 2}
        assert (await of.ask("spent", COMPLETIONS, smaller)).status_code == 200, "what is left may be used"


async def test_a_minutes_limit_beside_the_budget_is_told_as_what_it_is() -> None:
    tenant = {"id": "both", "tokens_per_day": 1000, "tokens_per_minute": 40}
    async with house(tenant) as of:
        answers = [await of.ask("both", COMPLETIONS, QUESTION) for _ in range(3)]
        error = answers[-1].json()["error"]
        assert (answers[-1].status_code, error["type"], error["code"]) == (
            429,
            "tokens",
            "rate_limit_exceeded",
        )
        assert "x-should-retry" not in answers[-1].headers

"""Can tenants be listed, put and deleted, with all their settings and no others?"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.settings import TenantSettings
from tests.gateway.admin.desk import Desk, desk_on


@pytest.fixture
async def desk(redis_url: str) -> AsyncIterator[Desk]:
    async with desk_on(redis_url) as desk:
        yield desk


def told(source: str, **fields: Any) -> dict[str, Any]:
    """A tenant with these settings, as it is told."""
    return TenantSettings(**fields).model_dump(mode="json") | {"object": "tenant", "source": source}


async def test_a_tenant_is_put_and_shown_with_all_its_settings(desk: Desk) -> None:
    fields = {"models": ["small"], "tokens_per_day": 10**6, "weight": 2.5, "allow_logprobs": False}
    seen = await desk.ask("PUT", "/admin/tenants/globex", fields)
    expected = told("redis", id="globex", **fields)
    assert (seen.status, seen.json()) == (200, expected)
    assert (await desk.ask("GET", "/admin/tenants/globex")).json() == expected
    acme = told("file", id="acme", requests_per_minute=600)
    assert (await desk.ask("GET", "/admin/tenants")).json() == {"object": "list", "data": [acme, expected]}


async def test_a_tenant_that_is_put_again_has_what_was_put_last_and_nothing_of_before(desk: Desk) -> None:
    await desk.ask("PUT", "/admin/tenants/globex", {"requests_per_minute": 1, "weight": 2})
    seen = await desk.ask("PUT", "/admin/tenants/globex", {"tokens_per_minute": 9})
    assert seen.json() == told("redis", id="globex", tokens_per_minute=9)


async def test_every_setting_of_a_tenant_can_be_put(desk: Desk) -> None:
    fields = {
        "models": ["*"], "requests_per_minute": 1, "tokens_per_minute": 2, "requests_per_day": 3,
        "tokens_per_day": 4, "max_concurrency": 5, "max_output_tokens": 6, "allow_logprobs": True,
        "allow_chat_template": True, "allow_media_urls": False, "cache_group": "us", "weight": 0.5,
        "priority": "batch",
    }  # fmt: skip
    assert fields.keys() | {"id"} == TenantSettings.model_fields.keys()
    seen = await desk.ask("PUT", "/admin/tenants/globex", fields)
    assert seen.json() == told("redis", id="globex", **fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"requests_per_minute": 0}, "body.requests_per_minute = 0: must be at least 1. Left out: no limit."),
        ({"weight": 0}, "body.weight = 0: must be above 0. Its share of the work that is dispatched"),
        ({"weight": 1001}, "body.weight = 1001: must be at most 1000. "),
        ({"priority": "high"}, "body.priority = \"high\": must be 'interactive', 'default' or 'batch'. "),
        ({"models": "small"}, 'body.models = "small": must be a list'),
        ({"models": ["a b"]}, 'body.models[0] = "a b": must be a model\'s name or alias'),
        ({"token_per_day": 1}, "body.token_per_day: unknown field; did you mean tokens_per_day?"),
        ({"id": "globex"}, "body.id: unknown field"),
        ({"source": "redis"}, "body.source: unknown field"),
    ],
)
async def test_a_setting_that_cannot_be_is_refused_and_nothing_is_put(
    desk: Desk, fields: dict[str, object], text: str
) -> None:
    seen = await desk.ask("PUT", "/admin/tenants/globex", fields)
    assert (seen.status, seen.code, seen.error["param"]) == (400, "invalid_value", next(iter(fields)))
    assert text in seen.error["message"]
    assert (await desk.ask("GET", "/admin/tenants/globex")).code == "tenant_not_found"


async def test_each_setting_at_fault_is_named(desk: Desk) -> None:
    fields = {"weight": 0, "max_concurrency": 0, "other": 1}
    message = (await desk.ask("PUT", "/admin/tenants/globex", fields)).error["message"]
    assert all(f"body.{name}" in message for name in fields)


async def test_an_empty_body_does_not_lift_all_limits(desk: Desk) -> None:
    assert (await desk.ask("PUT", "/admin/tenants/globex")).status == 415
    assert (await desk.ask("PUT", "/admin/tenants/globex", b"")).code == "invalid_json"


@pytest.mark.parametrize("tenant_id", ["a b", "ä", "a" * 65])
async def test_a_tenant_needs_an_id_that_is_one(desk: Desk, tenant_id: str) -> None:
    seen = await desk.ask("PUT", f"/admin/tenants/{tenant_id}", {})
    assert (seen.status, seen.error["param"]) == (400, "id")
    assert seen.error["message"].startswith("path.id = ")


async def test_a_tenant_of_the_file_is_changed_there(desk: Desk) -> None:
    for method, content in (("PUT", {}), ("DELETE", None)):
        seen = await desk.ask(method, "/admin/tenants/acme", content)
        assert (seen.status, seen.code) == (409, "conflict")
        assert "file" in seen.error["message"]


async def test_a_tenant_goes_once_its_keys_have_gone(desk: Desk) -> None:
    await desk.ask("PUT", "/admin/tenants/globex", {})
    await desk.ask("POST", "/admin/keys", {"tenant": "globex", "id": "globex-1"})
    seen = await desk.ask("DELETE", "/admin/tenants/globex")
    assert (seen.status, seen.code) == (409, "conflict")
    assert "globex-1" in seen.error["message"]
    await desk.ask("DELETE", "/admin/keys/globex-1")
    seen = await desk.ask("DELETE", "/admin/tenants/globex")
    assert (seen.status, seen.json()) == (200, {"object": "tenant", "id": "globex", "deleted": True})
    seen = await desk.ask("DELETE", "/admin/tenants/globex")
    assert (seen.status, seen.code) == (404, "tenant_not_found")


async def test_without_redis_tenants_can_be_read_and_the_rest_is_said_to_be_in_the_file() -> None:
    desk = Desk()
    assert (await desk.ask("GET", "/admin/tenants/acme")).json()["requests_per_minute"] == 600
    for method, content in (("PUT", {}), ("DELETE", None)):
        seen = await desk.ask(method, "/admin/tenants/globex", content)
        assert (seen.status, seen.code) == (409, "conflict")

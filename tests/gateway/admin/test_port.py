"""What does the admin port have, and is all below /admin behind its key?"""

import pytest

from tests.conftest import KEY, sha256
from tests.gateway.admin.desk import ADMIN_KEY, Desk
from tests.gateway.visiting import visit

BELOW_ADMIN = ["/admin", "/admin/", "/admin/keys", "/admin/tenants/acme", "/admin/usage", "/admin/nothing"]


async def test_metrics_and_health_need_no_key() -> None:
    desk = Desk(key_sha256=None)
    seen = await desk.ask("GET", "/metrics", key=False)
    assert (seen.status, seen.text) == (200, b"gateway_up 1\n")
    assert seen.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert (await desk.ask("GET", "/health", key=False)).json() == {"status": "alive"}


async def test_the_documents_need_no_key() -> None:
    desk = Desk(key_sha256=None)
    seen = await desk.ask("GET", "/openapi.json", key=False)
    assert seen.json() == desk.documented.document
    seen = await desk.ask("GET", "/openapi/public.json", key=False)
    assert "/v1/chat/completions" in seen.json()["paths"]


@pytest.mark.parametrize("path", BELOW_ADMIN)
async def test_without_a_configured_key_all_below_admin_is_closed(path: str) -> None:
    seen = await Desk(key_sha256=None).ask("GET", path)
    assert (seen.status, seen.error["type"], seen.code) == (403, "permission_denied", "admin_api_closed")


@pytest.mark.parametrize("path", BELOW_ADMIN)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_without_the_key_nothing_below_admin_tells_even_whether_it_is_there(
    path: str, method: str
) -> None:
    desk = Desk()
    for headers in ((), ((b"authorization", b"Bearer " + KEY.encode()),)):
        seen = await desk.ask(method, path, None, *headers, key=False)
        assert (seen.status, seen.code) == (401, "invalid_api_key")
        assert seen.headers["www-authenticate"] == "Bearer"


async def test_a_tenants_key_does_not_open_it() -> None:
    seen = await Desk().ask("GET", "/admin/keys", None, (b"authorization", b"Bearer sk-acme"), key=False)
    assert seen.status == 401


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/nothing", "/admin/keys/", "/admin/keys/a/b"])
async def test_other_paths_below_admin_are_not_there(path: str) -> None:
    seen = await Desk().ask("GET", path)
    assert (seen.status, seen.code) == (404, "not_found")


@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/administration", "/Admin/keys", "//admin/keys", "/openapi"]
)
async def test_there_is_nothing_else(path: str) -> None:
    seen = await visit(Desk().app, path)
    assert (seen.status, seen.code) == (404, "not_found")
    assert "cache-control" not in seen.headers


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/admin/keys", "GET, HEAD, POST"),
        ("GET", "/admin/keys/acme-1", "DELETE"),
        ("GET", "/admin/keys/acme-1/rotate", "POST"),
        ("POST", "/admin/tenants", "GET, HEAD"),
        ("PATCH", "/admin/tenants/acme", "DELETE, GET, HEAD, PUT"),
        ("DELETE", "/admin/usage", "GET, HEAD"),
        ("GET", "/admin/workers/w0/drain", "POST"),
    ],
)
async def test_other_methods_are_told_which_there_are(method: str, path: str, allow: str) -> None:
    seen = await Desk().ask(method, path)
    assert (seen.status, seen.code, seen.headers["allow"]) == (405, "method_not_allowed", allow)


async def test_head_is_answered_as_get() -> None:
    desk = Desk()
    seen = await desk.ask("HEAD", "/admin/workers")
    assert seen.json() == (await desk.ask("GET", "/admin/workers")).json()


async def test_every_answer_has_the_callers_request_id() -> None:
    for key_sha256 in (None, sha256(ADMIN_KEY), sha256("other")):
        desk = Desk(key_sha256=key_sha256)
        for path in ("/admin/workers", "/admin/nothing", "/health", "/nothing", "/openapi.json"):
            seen = await desk.ask("GET", path, None, (b"x-request-id", b"mine"))
            assert seen.headers["x-request-id"] == "mine"

"""Can keys be listed, made, rotated and revoked, and is a secret told just once?"""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import sha256
from tests.gateway.admin.desk import NOW, Desk, desk_on


@pytest.fixture
async def desk(redis_url: str) -> AsyncIterator[Desk]:
    async with desk_on(redis_url) as desk:
        yield desk


IN_FILE = {
    "object": "key",
    "id": "acme-1",
    "tenant": "acme",
    "state": "active",
    "created_at": None,
    "expires_at": None,
    "source": "file",
}


async def test_a_key_is_created_and_its_secret_is_told_this_once(desk: Desk) -> None:
    seen = await desk.ask("POST", "/admin/keys", {"tenant": "acme", "id": "acme-2"})
    created = seen.json()
    secret = created.pop("key")
    assert seen.status == 201
    assert secret.startswith("sk-acme-2-")
    stored = {**IN_FILE, "id": "acme-2", "created_at": "2026-11-30T00:53:20Z", "source": "redis"}
    assert created == stored
    listed = await desk.ask("GET", "/admin/keys")
    assert listed.json() == {"object": "list", "data": [IN_FILE, stored]}
    for told in (secret, secret[len("sk-acme-2-") :], sha256(secret), sha256("sk-acme")):
        assert told.encode() not in listed.text


async def test_a_key_without_a_name_gets_one(desk: Desk) -> None:
    created = (await desk.ask("POST", "/admin/keys", {"tenant": "acme"})).json()
    assert created["id"].startswith("acme-")
    listed = (await desk.ask("GET", "/admin/keys")).json()["data"]
    assert {key["id"] for key in listed} == {"acme-1", created["id"]}


async def test_keys_of_one_tenant_can_be_asked_for(desk: Desk) -> None:
    await desk.ask("PUT", "/admin/tenants/globex", {})
    await desk.ask("POST", "/admin/keys", {"tenant": "globex", "id": "globex-1"})
    for tenant, ids in (("acme", ["acme-1"]), ("globex", ["globex-1"]), ("none", [])):
        seen = await desk.ask("GET", f"/admin/keys?tenant={tenant}")
        assert [key["id"] for key in seen.json()["data"]] == ids
    assert (await desk.ask("GET", "/admin/keys?tenant=a%20b")).error["param"] == "tenant"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expires_in_s", 3600),
        ("expires_at", "2026-11-30T01:53:20Z"),
        ("expires_at", "2026-11-30T02:53:20+01:00"),
        ("expires_at", "2026-11-30T01:53:20.999Z"),
    ],
)
async def test_a_key_ends_when_it_was_said(desk: Desk, field: str, value: object) -> None:
    wanted = {"tenant": "acme", "id": "acme-2", field: value}
    created = (await desk.ask("POST", "/admin/keys", wanted)).json()
    assert (created["expires_at"], created["state"]) == ("2026-11-30T01:53:20Z", "active")
    desk.clock.now = NOW + 3601
    [_, key] = (await desk.ask("GET", "/admin/keys")).json()["data"]
    assert key["state"] == "expired"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "tenant"),
        ({"tenant": "a b"}, "tenant"),
        ({"tenant": "acme", "id": ""}, "id"),
        ({"tenant": "acme", "expires_in_s": 0}, "expires_in_s"),
        ({"tenant": "acme", "expires_in_s": 10**12}, "expires_in_s"),
        ({"tenant": "acme", "expires_in_s": 60, "expires_at": "2027-01-31T00:00:00Z"}, "expires_at"),
        ({"tenant": "acme", "expires_at": "2026-11-30T00:53:20Z"}, "expires_at"),
        ({"tenant": "acme", "expires_at": "2027-01-31T00:00:00"}, "expires_at"),
        ({"tenant": "acme", "key": "sk-mine"}, "key"),
        ({"tenant": "acme", "sha256": "00"}, "sha256"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_and_not_made(
    desk: Desk, fields: dict[str, object], param: str
) -> None:
    seen = await desk.ask("POST", "/admin/keys", fields)
    assert (seen.status, seen.error["param"]) == (400, param)
    assert (await desk.ask("GET", "/admin/keys")).json()["data"] == [IN_FILE]


async def test_a_key_needs_a_tenant_and_an_id_of_its_own(desk: Desk) -> None:
    seen = await desk.ask("POST", "/admin/keys", {"tenant": "nobody"})
    assert (seen.status, seen.code) == (404, "tenant_not_found")
    seen = await desk.ask("POST", "/admin/keys", {"tenant": "acme", "id": "acme-1"})
    assert (seen.status, seen.code) == (409, "conflict")


async def test_a_rotated_key_has_a_new_secret_and_the_old_one_for_a_while(desk: Desk) -> None:
    first = (await desk.ask("POST", "/admin/keys", {"tenant": "acme", "id": "acme-2"})).json()["key"]
    for sent, grace_s in ((None, 3600), ({"grace_s": 60}, 60), ({}, 3600)):
        seen = await desk.ask("POST", "/admin/keys/acme-2/rotate", sent)
        rotated = seen.json()
        assert (seen.status, rotated["id"], rotated["expires_at"]) == (200, "acme-2", None)
        assert rotated["key"] not in ("", first)
        [record] = await desk.registry.keys()
        assert [of.expires_at for of in record.secrets][:2] == [None, NOW + grace_s]
        assert [of.sha256 for of in record.secrets][:2] == [sha256(rotated["key"]), sha256(first)]
        first = rotated["key"]


async def test_a_rotation_that_cannot_be_is_refused(desk: Desk) -> None:
    seen = await desk.ask("POST", "/admin/keys/acme-2/rotate", {"grace_s": -1})
    assert (seen.status, seen.error["param"]) == (400, "grace_s")
    seen = await desk.ask("POST", "/admin/keys/acme-2/rotate")
    assert (seen.status, seen.code) == (404, "key_not_found")
    seen = await desk.ask("POST", "/admin/keys/acme-1/rotate")
    assert (seen.status, seen.code) == (409, "conflict")
    assert "file" in seen.error["message"]


async def test_a_revoked_key_is_still_listed_as_such(desk: Desk) -> None:
    await desk.ask("POST", "/admin/keys", {"tenant": "acme", "id": "acme-2"})
    for _ in range(2):  # once more is no mistake
        seen = await desk.ask("DELETE", "/admin/keys/acme-2")
        assert (seen.status, seen.json()["state"]) == (200, "revoked")
    [_, key] = (await desk.ask("GET", "/admin/keys")).json()["data"]
    assert key["state"] == "revoked"


async def test_only_a_key_that_is_kept_here_can_be_revoked(desk: Desk) -> None:
    seen = await desk.ask("DELETE", "/admin/keys/acme-2")
    assert (seen.status, seen.code) == (404, "key_not_found")
    seen = await desk.ask("DELETE", "/admin/keys/acme-1")
    assert (seen.status, seen.code) == (409, "conflict")


async def test_without_redis_keys_can_be_listed_and_the_rest_is_said_to_be_in_the_file() -> None:
    desk = Desk()
    assert (await desk.ask("GET", "/admin/keys")).json()["data"] == [IN_FILE]
    for method, path, content in (
        ("POST", "/admin/keys", {"tenant": "acme"}),
        ("POST", "/admin/keys/acme-1/rotate", None),
        ("DELETE", "/admin/keys/acme-1", None),
    ):
        seen = await desk.ask(method, path, content)
        assert (seen.status, seen.code) == (409, "conflict")
        assert "file" in seen.error["message"]


async def test_no_secret_is_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        secrets = [
            (await desk.ask("POST", path, content)).json()["key"]
            for path, content in (
                ("/admin/keys", {"tenant": "acme", "id": "acme-2"}),
                ("/admin/keys/acme-2/rotate", {}),
            )
        ]
    assert not any(secret in caplog.text for secret in secrets)

"""Do keys and tenants that are changed at one gateway open, limit and close at all that share its Redis?"""

import asyncio
import functools
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gateway import parts
from gateway.app import Gateway
from gateway.auth import Authenticator
from gateway.auth.cache import CACHE_S, STALE_S
from gateway.keyring import minting
from tests.conftest import sha256
from tests.e2e.callers import COMPLETIONS, QUESTION
from tests.e2e.observed import POLL_S, Clock
from tests.e2e.test_admin import Operated, operated
from tests.fakes import FakeWorker
from tests.redis_server import RedisServer

GET_MODELS = "/v1/models"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By it the answers of Redis grow old. It stands still, so that they change by news alone."""
    clock = Clock()
    monkeypatch.setattr(parts, "Authenticator", functools.partial(Authenticator, monotonic=clock))
    return clock


@asynccontextmanager
async def pair(redis_url: str, timeout_ms: int = 2000, **sections: Any) -> AsyncIterator[list[Operated]]:
    """Two gateways, each as if in a process of its own, that share a worker and a Redis."""
    store = {"url": redis_url, "timeout_ms": timeout_ms}
    async with (
        FakeWorker() as worker,
        operated(worker, store=store, **sections) as one,
        operated(worker, store=store, **sections) as two,
    ):
        yield [one, two]


def bearing(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def ask(of: Operated, secret: str) -> httpx.Response:
    return await of.call("POST", COMPLETIONS, QUESTION, headers=bearing(secret))


async def statuses(of: list[Operated], secret: str) -> list[int]:
    return [(await ask(one, secret)).status_code for one in of]


async def look(of: Operated, secret: str) -> httpx.Response:
    """What costs the tenant nothing."""
    return await of.call("GET", GET_MODELS, headers=bearing(secret))


async def become(status: int, of: list[Operated], secret: str) -> None:
    """Wait until the key is answered so. Only polling shows it."""
    for one in of:
        while (await look(one, secret)).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def new_key(of: Operated, tenant: str = "acme", **more: Any) -> str:
    """Its secret."""
    created = await of.ask("POST", "/admin/keys", {"tenant": tenant, **more})
    assert created.status_code == 201
    return str(created.json()["key"])


# Made


async def test_a_key_that_is_made_at_one_gateway_opens_all_at_once(redis_url: str) -> None:
    async with pair(redis_url) as [one, two]:
        await one.ask("PUT", "/admin/tenants/globex", {})
        secret = await new_key(one, "globex", id="globex-1")
        assert await statuses([one, two], secret) == [200, 200]
        lines = [*one.served.log_lines(), *two.served.log_lines()]
        assert [(line["tenant"], line["key"]) for line in lines] == [("globex", "globex-1")] * 2


async def test_a_key_that_was_refused_as_unknown_opens_once_it_is_made(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-acme-2-that-is-known-beforehand"
    monkeypatch.setattr(minting, "new_secret", lambda key_id: secret)
    async with pair(redis_url) as gateways:
        assert await statuses(gateways, secret) == [401, 401]
        assert await new_key(gateways[0]) == secret
        await become(200, gateways, secret)


# Rotated


async def test_after_a_rotation_both_secrets_are_good_until_the_grace_ends(redis_url: str) -> None:
    async with pair(redis_url) as gateways:
        one, two = gateways
        first = await new_key(one, id="acme-2")
        assert await statuses(gateways, first) == [200, 200]
        second = (await two.ask("POST", "/admin/keys/acme-2/rotate", {"grace_s": 3600})).json()["key"]
        for secret in (first, second):
            assert await statuses(gateways, secret) == [200, 200]
        third = (await one.ask("POST", "/admin/keys/acme-2/rotate", {"grace_s": 1})).json()["key"]
        for secret in (first, second):
            await become(401, gateways, secret)
        assert await statuses(gateways, third) == [200, 200]
        assert {line["key"] for line in two.served.log_lines() if line["status"] == 200} == {"acme-2"}


# Ended


async def test_a_key_that_is_revoked_at_one_gateway_is_refused_by_the_other(redis_url: str) -> None:
    async with pair(redis_url) as gateways:
        secret, other = await new_key(gateways[0], id="acme-2"), await new_key(gateways[0])
        assert await statuses(gateways, secret) == [200, 200]
        revoked = await gateways[0].ask("DELETE", "/admin/keys/acme-2")
        assert revoked.json()["state"] == "revoked"
        await become(401, gateways, secret)
        assert await statuses(gateways, other) == [200, 200]


async def test_while_news_do_not_arrive_a_revoked_key_is_refused_once_the_gap_is_noticed(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gateway, "_hear", lambda self, news: None)
    async with pair(redis_url) as gateways, Redis.from_url(redis_url) as redis:
        secret = await new_key(gateways[0], id="acme-2")
        assert await statuses(gateways, secret) == [200, 200]
        await gateways[0].ask("DELETE", "/admin/keys/acme-2")
        assert await statuses(gateways, secret) == [200, 200], "nobody told them"
        assert await redis.client_kill_filter(_type="pubsub") == 2
        await become(401, gateways, secret)


async def test_where_neither_news_nor_a_gap_tell_a_revoked_key_is_refused_when_its_answer_is_old(
    redis_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gateway, "_hear", lambda self, news: None)
    async with pair(redis_url) as gateways:
        secret = await new_key(gateways[0], id="acme-2")
        assert await statuses(gateways, secret) == [200, 200]
        await gateways[0].ask("DELETE", "/admin/keys/acme-2")
        clock.now_s = CACHE_S
        assert await statuses(gateways, secret) == [401, 401]


async def test_an_expired_key_is_refused_where_it_was_used_and_where_it_was_not(redis_url: str) -> None:
    async with pair(redis_url) as gateways:
        one, two = gateways
        lasting = await new_key(one, expires_in_s=3600)
        ending = await new_key(one, id="acme-2", expires_in_s=1)
        assert await statuses(gateways, lasting) == [200, 200]
        await become(401, [one], ending)
        assert await statuses(gateways, ending) == [401, 401]
        keys = (await two.ask("GET", "/admin/keys?tenant=acme")).json()["data"]
        assert {of["id"]: of["state"] for of in keys}["acme-2"] == "expired"


async def test_commands_make_renew_and_revoke_keys_of_running_gateways(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"

    async def keys(*argv: str) -> str:
        command = [sys.executable, "-m", "gateway", "keys", *argv, "--config", str(file)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0
        return said

    async with pair(redis_url) as gateways:
        file.write_text(
            f'[store]\nurl = "{redis_url}"\ntimeout_ms = 2000\n[[models]]\nname = "m"\n'
            '[[workers]]\nid = "w0"\nurl = "http://127.0.0.1:9"\nmodel = "m"\n[[tenants]]\nid = "acme"\n'
        )
        first = shown_once(await keys("create", "--tenant", "acme", "--id", "acme-2"))
        assert await statuses(gateways, first) == [200, 200]
        second = shown_once(await keys("rotate", "acme-2", "--grace", "0s"))
        await become(401, gateways, first)
        assert await statuses(gateways, second) == [200, 200]
        assert re.search(r"^acme-2 +acme +active +never +redis$", await keys("list"), re.MULTILINE)
        await keys("revoke", "acme-2")
        await become(401, gateways, second)


def shown_once(said: str) -> str:
    [secret] = re.findall(r"^ +(sk-\S+)$", said, re.MULTILINE)
    return str(secret)


# Tenants


async def test_limits_that_are_changed_at_one_gateway_hold_at_the_other(redis_url: str) -> None:
    async with pair(redis_url) as [one, two]:
        await one.ask("PUT", "/admin/tenants/globex", {"requests_per_day": 100})
        secret = await new_key(one, "globex")
        before = await ask(two, secret)
        assert (before.status_code, before.headers["x-ratelimit-limit-requests"]) == (200, "100")
        await one.ask("PUT", "/admin/tenants/globex", {"requests_per_day": 2})
        while (await look(two, secret)).headers["x-ratelimit-limit-requests"] != "2":  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        assert [(await ask(two, secret)).status_code for _ in range(2)] == [200, 429], "one was used before"


async def test_a_tenant_is_deleted_everywhere_and_its_keys_do_not_come_back_with_its_name(
    redis_url: str,
) -> None:
    async with pair(redis_url) as gateways:
        one, two = gateways
        await one.ask("PUT", "/admin/tenants/globex", {})
        secret = await new_key(one, "globex", id="globex-1")
        assert await statuses(gateways, secret) == [200, 200]
        kept = await two.ask("DELETE", "/admin/tenants/globex")
        assert (kept.status_code, "globex-1" in kept.json()["error"]["message"]) == (409, True)
        await one.ask("DELETE", "/admin/keys/globex-1")
        assert (await two.ask("DELETE", "/admin/tenants/globex")).status_code == 200
        assert (await one.ask("GET", "/admin/tenants/globex")).status_code == 404
        await become(401, gateways, secret)
        await two.ask("PUT", "/admin/tenants/globex", {})
        fresh = await new_key(two, "globex")
        assert await statuses(gateways, fresh) == [200, 200]
        assert await statuses(gateways, secret) == [401, 401]


# What a stranger learns


async def test_no_refusal_tells_why(redis_url: str) -> None:
    expired = "sk-test-expired-0123456789abcdefghijklmnop"
    keys = [{"id": "acme-old", "tenant": "acme", "sha256": sha256(expired), "expires_at": LONG_AGO}]
    async with pair(redis_url, keys=keys) as [one, two]:
        revoked, ended = await new_key(one, id="acme-2"), await new_key(one, expires_in_s=1)
        rotated = await new_key(one, id="acme-3")
        await one.ask("DELETE", "/admin/keys/acme-2")
        await one.ask("POST", "/admin/keys/acme-3/rotate", {"grace_s": 0})
        await become(401, [one, two], ended)
        wrong = [revoked, ended, rotated, expired, "sk-acme-2-unknown", revoked[:-1], sha256(rotated), "é"]
        sent = [b"Bearer " + secret.encode() for secret in wrong] + [b"", b"Basic " + revoked.encode()]
        for method, path in (("POST", COMPLETIONS), ("GET", GET_MODELS)):
            answers = [
                await of.call(method, path, headers={"authorization": value})
                for of in (one, two)
                for value in sent
            ]
            assert {answer.status_code for answer in answers} == {401}
            assert len({answer.content for answer in answers}) == 1
            assert len({tuple(sorted(answer.headers)) for answer in answers}) == 1


async def test_while_redis_is_frozen_keys_in_use_go_on_and_others_are_told_to_come_back(clock: Clock) -> None:
    with RedisServer() as redis:
        async with pair(redis.url, timeout_ms=250) as [one, _]:
            await one.ask("PUT", "/admin/tenants/globex", {"requests_per_day": 1000})
            in_use, unused = await new_key(one, "globex"), await new_key(one, "globex")
            assert (await ask(one, in_use)).status_code == 200
            assert (await ask(one, "sk-unknown")).status_code == 401
            await asyncio.to_thread(redis.freeze)
            for age_s in (0.0, CACHE_S, STALE_S - 1):
                clock.now_s = age_s
                answer = await ask(one, in_use)
                assert (answer.status_code, answer.headers["x-gateway-degraded"]) == (200, "local")
            for secret in (unused, "sk-also-unknown"):
                refused = await ask(one, secret)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
                assert refused.headers["retry-after"] == "1"
            clock.now_s = STALE_S
            assert (await ask(one, in_use)).status_code == 503, "nobody has vouched for it for too long"
            redis.thaw()
            await become(200, [one], in_use)
            await become(401, [one], "sk-also-unknown")


async def test_no_secret_and_no_hash_is_told_logged_or_in_a_name(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    async def listen(response: httpx.Response) -> None:
        await response.aread()
        told.append(f"{response.headers}{response.text}")

    async with pair(redis_url) as gateways, Redis.from_url(redis_url, decode_responses=True) as redis:
        one, two = gateways
        first = await new_key(one, id="acme-2")
        second = (await one.ask("POST", "/admin/keys/acme-2/rotate", {})).json()["key"]
        secrets = [first, second, sha256(first), sha256(second)]
        for of in gateways:
            of.public.event_hooks = of.admin.event_hooks = {"response": [listen]}
        for secret in (first, second):
            assert await statuses(gateways, secret) == [200, 200]
            await two.call("POST", f"{COMPLETIONS}?key={secret}", {}, headers=bearing(secret))
        names = [name async for name in redis.scan_iter()]
        values = [str(await redis.hgetall(name)) for name in ("gateway:keys", "gateway:digests")]
        await two.ask("DELETE", "/admin/keys/acme-2")
        for secret in (first, second):
            await become(401, gateways, secret)
            for path in ("/admin/keys", f"/admin/keys/{secret}"):
                await one.ask("GET", path, headers=bearing(secret))
        for path in ("/admin/keys", "/admin/tenants", "/admin/usage", "/metrics"):
            await one.ask("GET", path)
        told += [*map(str, one.served.log_lines()), *map(str, two.served.log_lines())]
    told += [
        record.getMessage() + str(record.exc_info) for record in caplog.records if "gateway" in record.name
    ]
    assert len(told) > 20
    assert {"gateway:keys", "gateway:digests"} <= set(names)
    assert not [secret for secret in secrets for text in (*told, *names) if secret in text]
    assert not [secret for secret in (first, second) for text in values if secret in text]


@pytest.mark.parametrize(("name", "spent"), [("tokens_per_day", 30), ("requests_per_day", 2)])
async def test_a_budget_that_is_used_up_and_then_raised_can_be_used_at_once(
    redis_url: str, name: str, spent: int
) -> None:
    async with pair(redis_url) as [one, two]:
        await one.ask("PUT", "/admin/tenants/globex", {name: spent})
        secret = await new_key(one, "globex")
        assert [(await ask(two, secret)).status_code for _ in range(3)] == [200, 200, 429]
        await one.ask("PUT", "/admin/tenants/globex", {name: spent * 10})
        limit = f"x-ratelimit-limit-{name.partition('_')[0]}"
        while (await look(two, secret)).headers[limit] != str(spent * 10):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        assert (await ask(two, secret)).status_code == 200

"""Do keys and tenants stand in Redis whole, change in whole steps, and open no more than they should?"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis
from msgspec.structs import replace
from redis.asyncio import Redis

from gateway.errors import Conflict, NotFound, StoreUnavailable
from gateway.keyring import KeyRecord, Keyring, SecretRecord, minting
from gateway.settings import Store, TenantSettings
from gateway.stores.redis.bulletin import Bulletin
from gateway.stores.redis.registry import ATTEMPTS, PAGE, RedisRegistry
from gateway.stores.redis.target import Target
from tests.ports import free_ports

NOW = time.time()
HOUR_S = 3600.0
ACME = TenantSettings(id="acme", models=["smollm2"], requests_per_minute=60)
DEADLINE_S = 20


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Redis]:
    target = Target(Store(url=url, timeout_ms=2000))
    async with target.client() as client:
        yield client
    await target.aclose()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with client_of(redis_url) as client:
        yield client


@pytest.fixture
def registry(client: Redis) -> RedisRegistry:
    return RedisRegistry(client)


def record(key_id: str = "acme-1", *secrets: SecretRecord, tenant: str = "acme") -> KeyRecord:
    return KeyRecord(key_id, tenant, secrets or (SecretRecord(minting.sha256(key_id)),), NOW)


async def kept(registry: RedisRegistry, *records: KeyRecord) -> None:
    for each in records:
        assert await registry.add_key(each, needs_tenant=False) == "added"


VERBS: dict[str, Callable[[RedisRegistry], Awaitable[object]]] = {
    "find": lambda of: of.find("ab" * 32),
    "keys": lambda of: of.keys(),
    "add_key": lambda of: of.add_key(record(tenant="globex"), needs_tenant=False),
    "change_key": lambda of: of.change_key("acme-1", lambda before: before),
    "tenants": lambda of: of.tenants(),
    "tenant": lambda of: of.tenant("acme"),
    "put_tenant": lambda of: of.put_tenant(ACME),
    "remove_tenant": lambda of: of.remove_tenant("acme", NOW),
}


# find


async def test_a_secret_leads_to_its_key_and_its_tenants_limits(registry: RedisRegistry) -> None:
    await registry.put_tenant(ACME)
    await kept(registry, record("acme-1", SecretRecord("ab" * 32, NOW + HOUR_S)))

    found = await registry.find("ab" * 32)

    assert found is not None
    assert (found.key_id, found.tenant_id, found.expires_at) == ("acme-1", "acme", NOW + HOUR_S)
    assert found.tenant == ACME.tenant()


async def test_a_tenant_that_redis_does_not_have_is_left_to_the_file(registry: RedisRegistry) -> None:
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))

    found = await registry.find("ab" * 32)

    assert found is not None
    assert (found.tenant_id, found.tenant, found.expires_at) == ("acme", None, None)


async def test_a_look_is_one_round_trip(client: Redis, registry: RedisRegistry) -> None:
    await registry.put_tenant(ACME)
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))
    await registry.find("ab" * 32)
    await client.config_resetstat()

    assert await registry.find("ab" * 32)

    calls = {name: of["calls"] for name, of in (await client.info("commandstats")).items()}
    del calls[next(name for name in calls if name.startswith("cmdstat_config"))]
    of_script = {"cmdstat_hget": 3, "cmdstat_time": 1}
    assert calls == {"cmdstat_evalsha": 1} | of_script


@pytest.mark.parametrize(
    "ended",
    [
        record("acme-1", SecretRecord("ab" * 32, NOW - 1)),
        record("acme-1", SecretRecord("cd" * 32), SecretRecord("ab" * 32, NOW - 1)),
        replace(record("acme-1", SecretRecord("ab" * 32)), revoked_at=NOW),
    ],
    ids=["expired", "rotated out", "revoked"],
)
async def test_a_secret_that_is_over_leads_nowhere(
    client: Redis, registry: RedisRegistry, ended: KeyRecord
) -> None:
    await registry.put_tenant(ACME)
    await kept(registry, ended)
    await client.hset("gateway:digests", "ab" * 32, "acme-1")  # as if that had been left behind

    assert await registry.find("ab" * 32) is None
    assert await registry.find("00" * 32) is None


async def test_a_digest_opens_only_the_key_that_has_it(client: Redis, registry: RedisRegistry) -> None:
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))
    await client.hset("gateway:digests", "cd" * 32, "acme-1")
    await client.hset("gateway:digests", "ef" * 32, "nobody")

    assert await registry.find("cd" * 32) is None
    assert await registry.find("ef" * 32) is None


async def test_while_a_rotation_is_in_its_grace_both_secrets_lead_to_the_key(registry: RedisRegistry) -> None:
    await registry.put_tenant(ACME)
    keyring = Keyring([], [], registry)
    old = await keyring.create("acme", "acme-1")
    new = await keyring.rotate("acme-1", HOUR_S)

    by_old, by_new = [await registry.find(minting.sha256(key.secret)) for key in (old, new)]

    assert by_old is not None
    assert by_new is not None
    assert (by_old.key_id, by_new.key_id) == ("acme-1", "acme-1")
    assert by_old.expires_at == new.record.secrets[1].expires_at
    assert by_new.expires_at is None


async def test_what_is_rotated_away_or_revoked_leaves_no_digest(
    client: Redis, registry: RedisRegistry
) -> None:
    await registry.put_tenant(ACME)
    keyring = Keyring([], [], registry)
    await keyring.create("acme", "acme-1")
    new = await keyring.rotate("acme-1", 0)
    after_rotation = await client.hgetall("gateway:digests")
    await keyring.revoke("acme-1")

    assert after_rotation == {minting.sha256(new.secret): "acme-1"}
    assert await client.hgetall("gateway:digests") == {}
    assert [of.id for of in await registry.keys()] == ["acme-1"]


async def test_no_secret_is_in_redis(client: Redis, registry: RedisRegistry) -> None:
    await registry.put_tenant(ACME)
    keyring = Keyring([], [], registry)
    secrets = [(await keyring.create("acme", "acme-1")).secret, (await keyring.rotate("acme-1")).secret]

    everything = [await client.hgetall(name) for name in await client.keys()]

    assert len(everything) == 3
    assert not any(secret.removeprefix("sk-acme-1-") in repr(everything) for secret in secrets)


# keys


async def test_keys_come_back_as_they_were_kept(registry: RedisRegistry) -> None:
    first, second = record("acme-1"), record("b-1", SecretRecord("ab" * 32, NOW), tenant="b")
    await kept(registry, first, second)

    assert sorted(await registry.keys(), key=lambda of: of.id) == [first, second]


async def test_more_keys_than_one_answer_holds_are_listed_once_each(
    client: Redis, registry: RedisRegistry
) -> None:
    ids = {f"k{number}" for number in range(2 * PAGE + 1)}
    secrets = [{"sha256": "ab" * 32}]
    texts: dict[bytes | bytearray | memoryview | str | int | float, Any] = {
        of: json.dumps({"id": of, "tenant": "acme", "secrets": secrets}) for of in ids
    }
    await client.hset("gateway:keys", mapping=texts)

    listed = [of.id for of in await registry.keys()]

    assert len(listed) == len(ids)
    assert set(listed) == ids


async def test_an_id_is_taken_once(registry: RedisRegistry) -> None:
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))

    other = record("acme-1", SecretRecord("cd" * 32))

    assert await registry.add_key(other, needs_tenant=False) == "taken"
    assert [of.secrets[0].sha256 for of in await registry.keys()] == ["ab" * 32]
    assert await registry.find("cd" * 32) is None


async def test_a_step_that_is_sent_again_because_its_answer_was_lost_is_no_conflict(
    registry: RedisRegistry,
) -> None:
    await kept(registry, record("acme-1"))

    assert await registry.add_key(record("acme-1"), needs_tenant=False) == "added"


async def test_a_key_is_not_made_for_a_tenant_that_is_gone(registry: RedisRegistry) -> None:
    assert await registry.add_key(record(), needs_tenant=True) == "no tenant"
    assert await registry.keys() == []
    await registry.put_tenant(ACME)
    assert await registry.add_key(record(), needs_tenant=True) == "added"


async def test_no_change_is_lost_when_many_come_at_once(redis_url: str) -> None:
    digests = [f"{number:064x}" for number in range(10)]

    async def add(digest: str) -> None:
        async with client_of(redis_url) as client:
            await RedisRegistry(client).change_key(
                "acme-1", lambda of: replace(of, secrets=(*of.secrets, SecretRecord(digest)))
            )

    async with client_of(redis_url) as client:
        registry = RedisRegistry(client)
        await kept(registry, record("acme-1", SecretRecord("ab" * 32)))
        await asyncio.gather(*map(add, digests))
        (after,) = await registry.keys()
        found = [await registry.find(digest) for digest in digests]

    assert {of.sha256 for of in after.secrets} == {*digests, "ab" * 32}
    assert len(after.secrets) == 11
    assert all(found)


async def test_a_change_that_others_always_forestall_gives_up_and_says_so(
    redis_url: str, registry: RedisRegistry
) -> None:
    await kept(registry, record("acme-1"))
    tries = 0

    with redis.Redis.from_url(redis_url) as other:

        def step(of: KeyRecord) -> KeyRecord:
            nonlocal tries
            tries += 1
            text = json.dumps({"id": of.id, "tenant": f"t{tries}", "secrets": [{"sha256": "ab" * 32}]})
            other.hset("gateway:keys", "acme-1", text)
            return replace(of, revoked_at=NOW)

        with pytest.raises(Conflict, match="Try again"):
            await registry.change_key("acme-1", step)

    assert tries == ATTEMPTS
    assert [of.revoked_at for of in await registry.keys()] == [None]


async def test_a_record_that_a_hand_wrote_with_spaces_can_be_changed(
    client: Redis, registry: RedisRegistry
) -> None:
    text = '{ "id": "acme-1", "tenant": "acme", "secrets": [ {"sha256": "ab"} ] }'
    await client.hset("gateway:keys", "acme-1", text)

    changed = await registry.change_key("acme-1", lambda of: replace(of, revoked_at=NOW))

    assert changed is not None
    assert await registry.keys() == [changed]


async def test_what_a_step_raises_comes_out_and_changes_nothing(registry: RedisRegistry) -> None:
    def step(of: KeyRecord) -> KeyRecord:
        raise NotFound("not this one")

    await kept(registry, record())

    with pytest.raises(NotFound, match="not this one"):
        await registry.change_key("acme-1", step)
    assert await registry.keys() == [record()]
    assert await registry.change_key("nobody", step) is None


# news


class Heard:
    """What the bulletin told, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, text: str = "gap") -> None:
        self._queue.put_nowait(text)

    async def next(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await self._queue.get()


async def test_every_change_is_told_and_nothing_else(client: Redis, registry: RedisRegistry) -> None:
    heard = Heard()
    async with Bulletin(client).listening(heard, heard):
        assert await heard.next() == "gap"
        await registry.put_tenant(ACME)
        await registry.add_key(record(), needs_tenant=True)
        await registry.add_key(record("acme-1", SecretRecord("ab" * 32)), needs_tenant=True)
        await registry.change_key("acme-1", lambda of: of)
        await registry.remove_tenant("acme", NOW)
        await registry.change_key("acme-1", lambda of: replace(of, revoked_at=NOW))
        await registry.remove_tenant("acme", NOW)
        await Bulletin(client).publish("the end")
        told = [await heard.next() for _ in range(5)]

    assert told == ["tenant:acme", "key:acme-1", "key:acme-1", "tenant:acme", "the end"]


async def test_a_change_that_cannot_be_told_is_not_made(client: Redis, redis_url: str) -> None:
    await client.execute_command("ACL", "SETUSER", "mute", "on", ">hush", "~*", "+@all", "resetchannels")  # type: ignore[no-untyped-call]
    try:
        async with client_of(redis_url.replace("://", "://mute:hush@")) as mute:
            for verb in ("add_key", "put_tenant"):
                with pytest.raises(StoreUnavailable) as caught:
                    await VERBS[verb](RedisRegistry(mute))
                assert "channel" in caught.value.detail
    finally:
        await client.acl_deluser("mute")

    assert await client.keys() == []


# tenants


async def test_tenants_come_back_as_they_were_put(client: Redis, registry: RedisRegistry) -> None:
    whole = TenantSettings(
        id="globex",
        models=["a", "b"],
        requests_per_minute=1,
        tokens_per_day=10**12,
        allow_logprobs=False,
        cache_group="g",
        weight=0.5,
        priority="batch",
    )
    await registry.put_tenant(ACME)
    await registry.put_tenant(whole)
    await registry.put_tenant(TenantSettings(id="acme"))

    assert sorted(await registry.tenants(), key=lambda of: of.id) == [TenantSettings(id="acme"), whole]
    assert await registry.tenant("globex") == whole
    assert await registry.tenant("nobody") is None
    assert await client.hget("gateway:tenants", "acme") == '{"id":"acme"}'


async def test_a_tenant_with_active_keys_stays(registry: RedisRegistry) -> None:
    await registry.put_tenant(ACME)
    over = SecretRecord("cd" * 32, NOW - 1)
    await kept(registry, record("acme-1"), record("acme-2", over), record("b-1", tenant="b"))

    assert await registry.remove_tenant("acme", NOW) == ["acme-1"]
    assert await registry.tenant("acme") == ACME
    await registry.change_key("acme-1", lambda of: replace(of, revoked_at=NOW))
    assert await registry.remove_tenant("acme", NOW) == []
    assert await registry.tenant("acme") is None


class Interrupted(RedisRegistry):
    """Others make keys of acme while it looks through the keys."""

    def __init__(self, client: Redis, other: RedisRegistry, times: int) -> None:
        super().__init__(client)
        self._other = other
        self.left = times

    async def keys(self) -> list[KeyRecord]:
        before = await super().keys()
        if self.left:
            self.left -= 1
            new = record(f"acme-{self.left}", SecretRecord(f"{self.left:064}", NOW - 1))
            assert await self._other.add_key(new, needs_tenant=True) == "added"
        return before


async def test_a_key_that_is_made_while_its_tenant_is_removed_is_not_overlooked(
    client: Redis, registry: RedisRegistry
) -> None:
    await registry.put_tenant(ACME)
    interrupted = Interrupted(client, registry, 1)

    assert await interrupted.remove_tenant("acme", NOW - 2) == ["acme-0"]
    assert await registry.tenant("acme") == ACME


async def test_a_removal_that_others_always_interrupt_gives_up_and_says_so(
    client: Redis, registry: RedisRegistry
) -> None:
    await registry.put_tenant(ACME)
    interrupted = Interrupted(client, registry, 2 * ATTEMPTS)

    with pytest.raises(Conflict, match="Try again"):
        await interrupted.remove_tenant("acme", NOW)
    assert interrupted.left == ATTEMPTS
    assert await registry.tenant("acme") == ACME


# what cannot be read

BROKEN_KEYS = {
    "no JSON": "{",
    "no record": "5",
    "null": "null",
    "of another key": '{"id":"other","tenant":"acme","secrets":[{"sha256":"SHA"}]}',
    "of a newer version": '{"id":"bad","tenant":"acme","secrets":[{"sha256":"SHA"}],"networks":[]}',
    "of the file": '{"id":"bad","tenant":"acme","secrets":[{"sha256":"SHA"}],"source":"file"}',
    "no tenant": '{"id":"bad","tenant":5,"secrets":[{"sha256":"SHA"}]}',
    "too deep": "[" * 2000,
}


@pytest.mark.parametrize("text", BROKEN_KEYS.values(), ids=BROKEN_KEYS)
async def test_a_key_that_cannot_be_read_opens_nothing_and_hides_no_other(
    client: Redis, registry: RedisRegistry, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    await registry.put_tenant(ACME)
    await kept(registry, record())
    await client.hset("gateway:keys", "bad", text.replace("SHA", "ab" * 32))
    await client.hset("gateway:digests", "ab" * 32, "bad")

    assert await registry.find("ab" * 32) is None
    assert await registry.keys() == [record()]
    assert await registry.keys() == [record()]
    (line,) = caplog.messages
    assert line.startswith("'bad' of gateway:keys in Redis cannot be read, and opens nothing: ")
    assert "ab" * 32 not in line
    assert await registry.add_key(record("bad"), needs_tenant=False) == "taken"
    with pytest.raises(Conflict, match="HDEL gateway:keys bad"):
        await registry.change_key("bad", lambda of: replace(of, revoked_at=NOW))


BROKEN_TENANTS = {
    "no JSON": "{",
    "of another tenant": '{"id":"other"}',
    "of a newer version": '{"id":"acme","sk-hush":[]}',
    "out of range": '{"id":"acme","requests_per_minute":-77}',
}


@pytest.mark.parametrize("text", BROKEN_TENANTS.values(), ids=BROKEN_TENANTS)
async def test_a_tenant_that_cannot_be_read_is_none_and_hides_no_other(
    client: Redis, registry: RedisRegistry, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    globex = TenantSettings(id="globex")
    await registry.put_tenant(globex)
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))
    await client.hset("gateway:tenants", "acme", text)

    found = await registry.find("ab" * 32)

    assert found is not None
    assert found.tenant is None
    assert await registry.tenant("acme") is None
    assert await registry.tenants() == [globex]
    (line,) = caplog.messages
    assert line.startswith("'acme' of gateway:tenants in Redis cannot be read, and opens nothing: ")
    assert "-77" not in line


async def test_what_breaks_again_after_it_was_mended_is_told_again(
    client: Redis, registry: RedisRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await client.hset("gateway:keys", "acme-1", "{")
        await client.hset("gateway:tenants", "acme", "{")
        assert (await registry.keys(), await registry.tenants()) == ([], [])
        await client.hdel("gateway:keys", "acme-1")
        await kept(registry, record())
        await registry.put_tenant(ACME)
        assert (await registry.keys(), await registry.tenants()) == ([record()], [ACME])

    assert len(caplog.messages) == 4


# Redis itself


async def test_a_redis_that_forgot_the_scripts_is_told_them_again(
    client: Redis, registry: RedisRegistry
) -> None:
    await kept(registry, record("acme-1", SecretRecord("ab" * 32)))
    await registry.find("ab" * 32)
    await client.script_flush()

    assert await registry.find("ab" * 32)
    await kept(registry, record("acme-2"))


async def test_gateways_of_another_prefix_have_other_keys(client: Redis, registry: RedisRegistry) -> None:
    other = RedisRegistry(client, "other")
    await kept(other, record("acme-1", SecretRecord("ab" * 32)))
    await other.put_tenant(ACME)

    assert (await registry.keys(), await registry.tenants()) == ([], [])
    assert await registry.find("ab" * 32) is None
    assert {str(name).partition(":")[0] for name in await client.keys()} == {"other"}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_redis_that_is_away_is_said_to_be_and_nothing_of_where_it_is(
    verb: Callable[[RedisRegistry], Awaitable[object]],
) -> None:
    (port,) = free_ports(1)
    async with client_of(f"redis://127.0.0.1:{port}/0") as client:
        with pytest.raises(StoreUnavailable) as caught:
            await verb(RedisRegistry(client))

    assert caught.value.retry_after_s == 1
    assert "127.0.0.1" not in caught.value.message
    assert caught.value.detail.startswith("ConnectionError: ")


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_redis_that_refuses_is_told_with_its_reason(
    client: Redis, registry: RedisRegistry, verb: Callable[[RedisRegistry], Awaitable[object]]
) -> None:
    for name in ("keys", "digests", "tenants"):
        await client.set(f"gateway:{name}", "no hash")

    with pytest.raises(StoreUnavailable) as caught:
        await verb(registry)

    assert "WRONGTYPE" in caught.value.detail

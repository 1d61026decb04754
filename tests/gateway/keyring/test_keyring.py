"""Do keys and tenants live as they should: made, renewed, ended, and never where they cannot be changed?"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from gateway.errors import BadRequest, Conflict, GatewayError, NotFound
from gateway.keyring import Addition, KeyRecord, Keyring, NewKey, SecretRecord, TenantRecord, minting
from gateway.settings import KeySettings, Settings, TenantSettings

NOW = 1_800_000_000.0
HOUR_S = 3600.0
END = datetime(2030, 1, 1, tzinfo=UTC)


class Shelf:
    """A TenancyStore in a dictionary."""

    def __init__(self) -> None:
        self.records: dict[str, KeyRecord] = {}
        self.settings: dict[str, TenantSettings] = {}

    async def keys(self) -> list[KeyRecord]:
        return list(self.records.values())

    async def add_key(self, record: KeyRecord, *, needs_tenant: bool) -> Addition:
        if record.id in self.records:
            return "taken"
        if needs_tenant and record.tenant not in self.settings:
            return "no tenant"
        self.records[record.id] = record
        return "added"

    async def change_key(self, key_id: str, step: Callable[[KeyRecord], KeyRecord]) -> KeyRecord | None:
        if key_id in self.records:
            self.records[key_id] = step(self.records[key_id])
        return self.records.get(key_id)

    async def tenants(self) -> list[TenantSettings]:
        return list(self.settings.values())

    async def tenant(self, tenant_id: str) -> TenantSettings | None:
        return self.settings.get(tenant_id)

    async def put_tenant(self, settings: TenantSettings) -> None:
        self.settings[settings.id] = settings

    async def remove_tenant(self, tenant_id: str, now: float) -> list[str]:
        active = [of.id for of in self.records.values() if of.tenant == tenant_id]
        active = [key_id for key_id in active if self.records[key_id].state(now) == "active"]
        if not active:
            del self.settings[tenant_id]
        return active


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> Clock:
    return Clock()


FILE_TENANTS = [TenantSettings(id="acme", requests_per_minute=60)]
FILE_KEYS = [KeySettings(id="acme-1", tenant="acme", sha256="ab" * 32, expires_at=END)]


@pytest.fixture
def keyring(shelf: Shelf, clock: Clock) -> Keyring:
    """The file has tenant acme with key acme-1; the store is empty."""
    return Keyring(FILE_TENANTS, FILE_KEYS, shelf, clock)


@pytest.fixture
def of_file() -> Keyring:
    """The same file, and no store."""
    return Keyring(FILE_TENANTS, FILE_KEYS, clock=Clock())


def opens(record: KeyRecord, secret: str, now: float) -> bool:
    """Whether the secret is a good one of this key."""
    if record.state(now) != "active":
        return False
    return any(of.sha256 == minting.sha256(secret) and of.is_good(now) for of in record.secrets)


async def refusal(call: Awaitable[object]) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await call
    return caught.value


# create


async def test_a_new_key_is_kept_by_its_hash_and_opens_the_door(keyring: Keyring, shelf: Shelf) -> None:
    new = await keyring.create("acme", "acme-2")

    assert shelf.records == {"acme-2": new.record}
    assert new.record.created_at == NOW
    assert (new.record.tenant, new.record.source, new.record.expires_at) == ("acme", "redis", None)
    assert opens(new.record, new.secret, NOW)
    assert new.secret not in repr(shelf.records)
    assert new.secret.startswith("sk-acme-2-")


async def test_a_key_without_a_given_id_gets_one_of_its_tenants(keyring: Keyring) -> None:
    assert (await keyring.create("acme")).record.id.startswith("acme-")


async def test_a_key_ends_when_it_was_to_end(keyring: Keyring) -> None:
    new = await keyring.create("acme", expires_at=NOW + HOUR_S)

    assert opens(new.record, new.secret, NOW + HOUR_S - 1)
    assert new.record.state(NOW + HOUR_S) == "expired"


@pytest.mark.parametrize("expires_at", [NOW, NOW - 1, float("inf"), float("nan"), 1e12])
async def test_a_key_cannot_end_in_the_past_or_at_no_time_that_can_be_written(
    keyring: Keyring, shelf: Shelf, expires_at: float
) -> None:
    with pytest.raises(BadRequest, match="a time to come") as caught:
        await keyring.create("acme", expires_at=expires_at)

    assert caught.value.param == "expires_at"
    assert shelf.records == {}


@pytest.mark.parametrize("key_id", ["", "a b", 'a"b', "a" * 65, "a\n", "ä"])
async def test_an_id_that_logs_and_toml_could_not_hold_is_refused(keyring: Keyring, key_id: str) -> None:
    with pytest.raises(BadRequest, match="1 to 64 letters, digits or") as caught:
        await keyring.create("acme", key_id)

    assert caught.value.param == "id"


@pytest.mark.parametrize("key_id", ["acme-1", "acme-2"])
async def test_an_id_is_taken_once_in_file_and_store_together(keyring: Keyring, key_id: str) -> None:
    await keyring.create("acme", "acme-2")

    with pytest.raises(Conflict, match=f'There is a key "{key_id}" already'):
        await keyring.create("acme", key_id)


async def test_a_key_needs_a_tenant_that_exists_in_the_file_or_in_the_store(keyring: Keyring) -> None:
    error = await refusal(keyring.create("globex"))
    await keyring.put_tenant(TenantSettings(id="globex"))

    assert (error.status, error.code) == (404, "tenant_not_found")
    assert (await keyring.create("globex")).record.tenant == "globex"


# rotate


async def test_after_a_rotation_both_secrets_open_the_door_until_the_grace_is_over(
    keyring: Keyring, shelf: Shelf, clock: Clock
) -> None:
    old = await keyring.create("acme", "acme-2")
    clock.now += 10
    new = await keyring.rotate("acme-2", HOUR_S)

    assert shelf.records["acme-2"] == new.record
    assert new.secret != old.secret
    assert new.record.created_at == NOW
    assert opens(new.record, old.secret, clock.now + HOUR_S - 1)
    assert not opens(new.record, old.secret, clock.now + HOUR_S)
    assert opens(new.record, new.secret, clock.now + HOUR_S)
    assert new.record.expires_at is None


async def test_the_grace_is_an_hour_if_nobody_says_otherwise(keyring: Keyring) -> None:
    old = await keyring.create("acme", "acme-2")
    new = await keyring.rotate("acme-2")

    assert opens(new.record, old.secret, NOW + HOUR_S - 1)
    assert not opens(new.record, old.secret, NOW + HOUR_S)


async def test_a_rotation_without_grace_ends_every_earlier_secret_at_once(keyring: Keyring) -> None:
    first = await keyring.create("acme", "acme-2")
    second = await keyring.rotate("acme-2", HOUR_S)
    third = await keyring.rotate("acme-2", 0)

    assert [of.sha256 for of in third.record.secrets] == [minting.sha256(third.secret)]
    assert not opens(third.record, first.secret, NOW)
    assert not opens(third.record, second.secret, NOW)


async def test_rotated_secrets_whose_time_is_over_are_dropped(keyring: Keyring, clock: Clock) -> None:
    await keyring.create("acme", "acme-2")
    second = await keyring.rotate("acme-2", HOUR_S)
    clock.now += HOUR_S
    third = await keyring.rotate("acme-2", HOUR_S)

    digests = [minting.sha256(new.secret) for new in (third, second)]
    assert [of.sha256 for of in third.record.secrets] == digests


async def test_a_second_rotation_does_not_lengthen_the_first_ones_grace(keyring: Keyring) -> None:
    first = await keyring.create("acme", "acme-2")
    await keyring.rotate("acme-2", 60)
    third = await keyring.rotate("acme-2", HOUR_S)

    assert opens(third.record, first.secret, NOW + 59)
    assert not opens(third.record, first.secret, NOW + 60)


async def test_to_rotate_is_not_to_prolong(keyring: Keyring) -> None:
    old = await keyring.create("acme", "acme-2", expires_at=NOW + 60)
    new = await keyring.rotate("acme-2", HOUR_S)

    assert new.record.expires_at == NOW + 60
    assert not opens(new.record, old.secret, NOW + 60)


@pytest.mark.parametrize("grace_s", [-1, float("nan"), float("inf"), 366 * 86400.0])
async def test_a_grace_without_end_or_sense_is_refused(keyring: Keyring, grace_s: float) -> None:
    old = await keyring.create("acme", "acme-2")

    with pytest.raises(BadRequest, match="from 0 to 31536000 seconds") as caught:
        await keyring.rotate("acme-2", grace_s)

    assert caught.value.param == "grace_s"
    assert await keyring.keys("acme") == [*await Keyring([], FILE_KEYS).keys(), old.record]


async def test_a_key_that_is_over_is_not_rotated(keyring: Keyring, clock: Clock) -> None:
    await keyring.create("acme", "revoked")
    await keyring.revoke("revoked")
    await keyring.create("acme", "ended", expires_at=NOW + 1)
    clock.now += 1

    with pytest.raises(Conflict, match=r'Key "revoked" is revoked\. Create a new one'):
        await keyring.rotate("revoked")
    with pytest.raises(Conflict, match=r'Key "ended" is expired\. Create a new one'):
        await keyring.rotate("ended")


# revoke


async def test_a_revoked_key_opens_nothing_and_is_still_listed(keyring: Keyring, clock: Clock) -> None:
    new = await keyring.create("acme", "acme-2")
    clock.now += 5

    record = await keyring.revoke("acme-2")

    assert not opens(record, new.secret, clock.now)
    assert record.revoked_at == NOW + 5
    assert record in await keyring.keys()


async def test_to_revoke_twice_keeps_the_first_time(keyring: Keyring, clock: Clock) -> None:
    await keyring.create("acme", "acme-2")
    first = await keyring.revoke("acme-2")
    clock.now += 5

    assert await keyring.revoke("acme-2") == first


async def test_a_key_of_the_store_can_be_revoked_though_the_file_has_one_of_its_name(
    keyring: Keyring, shelf: Shelf
) -> None:
    shelf.records["acme-1"] = KeyRecord("acme-1", "acme", (SecretRecord("cd" * 32),), NOW)

    await keyring.revoke("acme-1")

    assert [(of.source, of.state(NOW)) for of in await keyring.keys()] == [
        ("file", "active"),
        ("redis", "revoked"),
    ]


@pytest.mark.parametrize("verb", [Keyring.rotate, Keyring.revoke])
async def test_a_key_that_is_nowhere_is_not_found(
    keyring: Keyring, of_file: Keyring, verb: Callable[[Keyring, str], Awaitable[object]]
) -> None:
    for each in (keyring, of_file):
        error = await refusal(verb(each, "nobody"))

        assert (error.status, error.code) == (404, "key_not_found")
        assert "gateway keys list" in error.message


@pytest.mark.parametrize(
    ("verb", "remedy"), [(Keyring.rotate, "give this one expires_at"), (Keyring.revoke, "delete its entry")]
)
async def test_a_key_of_the_file_is_changed_there_and_the_message_says_how(
    keyring: Keyring, of_file: Keyring, verb: Callable[[Keyring, str], Awaitable[object]], remedy: str
) -> None:
    for each in (keyring, of_file):
        error = await refusal(verb(each, "acme-1"))

        assert isinstance(error, Conflict)
        assert "kept in the configuration file" in error.message
        assert f"{remedy} under [[keys]]" in error.message


# without a store


async def test_without_a_store_keys_and_tenants_live_in_the_file(of_file: Keyring) -> None:
    assert [key.id for key in await of_file.keys()] == ["acme-1"]
    assert await of_file.tenants() == [TenantRecord(FILE_TENANTS[0], "file")]
    assert (await of_file.tenant("acme")).settings.requests_per_minute == 60
    with pytest.raises(NotFound):
        await of_file.tenant("globex")


async def test_without_a_store_nothing_is_made_and_the_message_says_where_it_is(of_file: Keyring) -> None:
    for call in (
        of_file.create("acme"),
        of_file.put_tenant(TenantSettings(id="globex")),
        of_file.delete_tenant("globex"),
    ):
        error = await refusal(call)

        assert isinstance(error, Conflict)
        assert 'store.url is "memory://"' in error.message


async def test_a_draft_is_a_key_that_is_kept_nowhere(of_file: Keyring) -> None:
    new = of_file.draft("acme", "acme-2", NOW + 60)

    assert isinstance(new, NewKey)
    assert opens(new.record, new.secret, NOW)
    assert [key.id for key in await of_file.keys()] == ["acme-1"]
    with pytest.raises(Conflict):
        of_file.draft("acme", "acme-1")


# lists


async def test_keys_of_file_and_store_are_listed_together_by_tenant_and_id(keyring: Keyring) -> None:
    await keyring.put_tenant(TenantSettings(id="aaa"))
    await keyring.create("aaa", "zzz")
    await keyring.create("acme", "aaa-1")

    assert [(of.tenant, of.id, of.source) for of in await keyring.keys()] == [
        ("aaa", "zzz", "redis"),
        ("acme", "aaa-1", "redis"),
        ("acme", "acme-1", "file"),
    ]
    assert [of.id for of in await keyring.keys("aaa")] == ["zzz"]
    assert await keyring.keys("nobody") == []


async def test_a_key_of_the_file_tells_its_end_and_no_beginning(keyring: Keyring) -> None:
    (record,) = await keyring.keys()

    assert (record.expires_at, record.created_at) == (END.timestamp(), None)
    assert record.state(END.timestamp() - 1) == "active"
    assert record.state(END.timestamp()) == "expired"


async def test_a_changed_file_takes_the_place_of_the_old_one(keyring: Keyring) -> None:
    keyring.replace(
        Settings(
            tenants=(TenantSettings(id="globex"),),
            keys=(KeySettings(id="globex-1", tenant="globex", sha256="cd" * 32),),
        )
    )

    assert [(key.id, key.expires_at) for key in await keyring.keys()] == [("globex-1", None)]
    assert [of.settings.id for of in await keyring.tenants()] == ["globex"]


# tenants


async def test_a_tenant_of_the_store_is_made_changed_and_deleted(keyring: Keyring) -> None:
    await keyring.put_tenant(TenantSettings(id="globex", max_concurrency=1))
    put = await keyring.put_tenant(TenantSettings(id="globex", max_concurrency=2))
    got = await keyring.tenant("globex")
    listed = [(of.settings.id, of.source) for of in await keyring.tenants()]
    await keyring.delete_tenant("globex")

    assert put == got == TenantRecord(TenantSettings(id="globex", max_concurrency=2), "redis")
    assert listed == [("acme", "file"), ("globex", "redis")]
    assert (await refusal(keyring.tenant("globex"))).code == "tenant_not_found"


async def test_the_files_tenant_goes_before_one_of_the_same_id_in_the_store(
    keyring: Keyring, shelf: Shelf
) -> None:
    shelf.settings["acme"] = TenantSettings(id="acme")

    assert await keyring.tenant("acme") == TenantRecord(FILE_TENANTS[0], "file")
    assert await keyring.tenants() == [TenantRecord(FILE_TENANTS[0], "file")]


async def test_a_tenant_of_the_file_is_changed_there(keyring: Keyring, shelf: Shelf) -> None:
    for call in (keyring.put_tenant(TenantSettings(id="acme")), keyring.delete_tenant("acme")):
        error = await refusal(call)

        assert isinstance(error, Conflict)
        assert "edit it under [[tenants]]" in error.message
    assert shelf.settings == {}


async def test_a_tenant_stays_while_it_has_active_keys(keyring: Keyring, clock: Clock) -> None:
    await keyring.put_tenant(TenantSettings(id="globex"))
    for number in range(7):
        await keyring.create("globex", f"g{number}", expires_at=NOW + 1 if number == 6 else None)

    error = await refusal(keyring.delete_tenant("globex"))
    clock.now += 1
    for number in range(6):
        await keyring.revoke(f"g{number}")
    await keyring.delete_tenant("globex")

    assert isinstance(error, Conflict)
    assert error.message == 'Tenant "globex" has active keys: g0, g1, g2, g3, g4 and more. Revoke them first.'


async def test_a_tenant_that_is_nowhere_cannot_be_deleted(keyring: Keyring) -> None:
    error = await refusal(keyring.delete_tenant("globex"))

    assert (error.status, error.code) == (404, "tenant_not_found")

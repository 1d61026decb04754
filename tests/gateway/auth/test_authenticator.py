"""Who is let in, as whom, and can two refusals be told apart?"""

import hashlib
import hmac
import math
from datetime import UTC, datetime

import pytest

from gateway.auth import Authenticator, FileDirectory
from gateway.auth.cache import CACHE_S, INDEX_BYTES
from gateway.errors import StoreUnavailable, Unauthorized
from gateway.model import Caller, Fields, Tenant
from gateway.settings import TenantSettings
from tests.gateway.auth.directories import (
    REMOTE,
    SECRET,
    Clock,
    FakeDirectory,
    Key,
    bearing,
    digest,
    file_key,
    quiet,
)

ACME = TenantSettings(id="acme", max_concurrency=5)
GLOBEX = TenantSettings(id="globex", cache_group="twins")
FILE = FileDirectory(
    [ACME, GLOBEX], [file_key(), file_key("sk-2", "acme-2"), file_key("sk-g", "globex-1", "globex")]
)
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
SALT_SECRET = b"secret"


def authenticator(file: FileDirectory = FILE) -> Authenticator:
    return Authenticator(file, SALT_SECRET)


def recognised(auth: Authenticator, secret: str) -> Caller:
    caller = auth.recognise(bearing(secret))
    assert caller is not None
    return caller


async def refusal(auth: Authenticator, fields: Fields) -> Unauthorized:
    assert auth.recognise(fields) is None
    with pytest.raises(Unauthorized) as caught:
        await auth.identify(fields)
    return caught.value


# Keys of the file


async def test_a_key_names_its_tenant_and_itself() -> None:
    auth = authenticator()
    for secret, tenant, key_id in ((SECRET, ACME, "acme-1"), ("sk-g", GLOBEX, "globex-1")):
        caller = recognised(auth, secret)
        assert (caller.tenant, caller.key_id) == (tenant.tenant(), key_id)
        assert await auth.identify(bearing(secret)) is caller


def near(secret: str, at: int) -> FileDirectory:
    """A file with a key whose hash differs from this secret's in one byte."""
    sha256 = bytearray(digest(secret))
    sha256[at] ^= 1
    return FileDirectory([ACME], [file_key(sha256=sha256.hex())])


@pytest.mark.parametrize("at", [0, INDEX_BYTES - 1, INDEX_BYTES, 31])
async def test_every_byte_of_the_hash_counts(at: int) -> None:
    await refusal(authenticator(near(SECRET, at)), bearing(SECRET))


REFUSED: dict[str, Fields] = {
    "missing": {},
    "odd": {b"authorization": b"Bearer"},
    "unknown": bearing("sk-unknown"),
    "beginning of a key": bearing(SECRET[:-1]),
    "more than a key": bearing(SECRET + "0"),
    "other case": bearing(SECRET.upper()),
    "the hash of a key": bearing(digest(SECRET).hex()),
    "expired": bearing("sk-old"),
    "revoked": bearing("sk-revoked"),
    "tenant gone": bearing("sk-stray"),
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("has_directory", [True, False])
async def test_all_others_get_one_and_the_same_refusal(fields: Fields, has_directory: bool) -> None:
    directory = FakeDirectory({"sk-stray": Key("stray", "nowhere")}) if has_directory else None
    file = FileDirectory([ACME], [file_key(), file_key("sk-old", "old", expires_at=NEW_YEAR)])
    auth = Authenticator(file, SALT_SECRET, directory=directory, clock=Clock(NEW_YEAR.timestamp()))

    for _ in range(2):  # asked for, and known
        error = await refusal(auth, fields)
        assert (error.status, error.body(), error.detail) == (401, Unauthorized().body(), "")


async def test_a_key_of_the_file_expires_at_its_time() -> None:
    clock = Clock(NEW_YEAR.timestamp() - 0.001)
    file = FileDirectory([ACME], [file_key(expires_at=NEW_YEAR)])
    auth = Authenticator(file, SALT_SECRET, clock=clock)
    assert recognised(auth, SECRET).key_id == "acme-1"
    clock.now_s = NEW_YEAR.timestamp()
    await refusal(auth, bearing(SECRET))


# Where no key is required


@pytest.mark.parametrize("fields", [REFUSED["missing"], REFUSED["unknown"], REFUSED["odd"]])
async def test_everyone_else_is_anonymous(fields: Fields) -> None:
    auth = Authenticator(FILE, SALT_SECRET, anonymous=Tenant("anonymous"))
    stranger = auth.recognise(fields)
    assert stranger is not None
    assert (stranger.tenant, stranger.key_id) == (Tenant("anonymous"), "")
    assert await auth.identify(fields) is stranger
    assert recognised(auth, SECRET).key_id == "acme-1"


def test_anonymous_is_limited_as_the_file_has_it() -> None:
    limited = TenantSettings(id="anonymous", requests_per_minute=1)
    auth = Authenticator(FileDirectory([limited], []), SALT_SECRET, anonymous=Tenant("anonymous"))
    assert recognised(auth, "x").tenant == limited.tenant()
    auth.replace(FileDirectory([], []))
    assert recognised(auth, "x").tenant == Tenant("anonymous")


async def test_an_unknown_key_is_anonymous_only_once_the_directory_has_said_so() -> None:
    directory = FakeDirectory({"sk-r": REMOTE})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory, anonymous=Tenant("anonymous"))
    assert auth.recognise(bearing("sk-r")) is None
    assert (await auth.identify(bearing("sk-r"))).key_id == "acme-r"
    assert auth.recognise(bearing("no")) is None
    assert (await auth.identify(bearing("no"))).key_id == ""
    assert recognised(auth, "no").tenant.id == "anonymous"


# Keys of the directory


async def test_a_key_of_the_directory_is_asked_for_once_and_then_known() -> None:
    directory = FakeDirectory({"sk-r": Key("r", "initech", Tenant("initech", max_concurrency=2))})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    assert auth.recognise(bearing("sk-r")) is None
    caller = await auth.identify(bearing("sk-r"))
    assert (caller.tenant, caller.key_id) == (Tenant("initech", max_concurrency=2), "r")
    assert recognised(auth, "sk-r") is caller
    assert directory.calls == 1


async def test_keys_of_the_file_are_not_asked_for() -> None:
    directory = FakeDirectory({SECRET: Key("other", "globex")})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    assert (await auth.identify(bearing(SECRET))).key_id == "acme-1"
    assert directory.calls == 0


@pytest.mark.parametrize("tenant", [None, Tenant("acme", max_concurrency=1)])
async def test_a_tenant_of_the_file_goes_before_one_of_the_directory(tenant: Tenant | None) -> None:
    directory = FakeDirectory({"sk-r": Key("r", "acme", tenant)})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    assert (await auth.identify(bearing("sk-r"))).tenant == ACME.tenant()


async def test_a_key_whose_tenant_is_nowhere_is_refused_and_said_so_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth = Authenticator(FILE, SALT_SECRET, directory=FakeDirectory({"sk-r": Key("r", "initech")}))
    await refusal(auth, bearing("sk-r"))
    assert [record.getMessage() for record in caplog.records] == [
        "key r is refused: its tenant initech is neither in the file nor in the store"
    ]


async def test_a_known_key_of_the_directory_expires_at_its_time_without_being_asked_for() -> None:
    clock, directory = Clock(0.0), FakeDirectory({"sk-r": Key("r", "acme", expires_at=5.0)})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory, clock=clock, monotonic=Clock(0.0))
    await auth.identify(bearing("sk-r"))
    clock.now_s = math.nextafter(5.0, 0.0)
    assert recognised(auth, "sk-r").key_id == "r"
    clock.now_s = 5.0
    await refusal(auth, bearing("sk-r"))
    assert directory.calls == 1


async def test_without_the_directory_a_key_it_might_know_gets_503_and_an_odd_one_401() -> None:
    directory = FakeDirectory()
    directory.is_away = True
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    with pytest.raises(StoreUnavailable):
        await auth.identify(bearing("sk-r"))
    await refusal(auth, REFUSED["odd"])
    assert recognised(auth, SECRET).key_id == "acme-1"


async def test_a_hot_key_works_on_while_the_directory_is_away() -> None:
    directory, monotonic = FakeDirectory({"sk-r": REMOTE}), Clock(0.0)
    auth = Authenticator(FILE, SALT_SECRET, directory=directory, monotonic=monotonic)
    await auth.identify(bearing("sk-r"))
    directory.is_away = True
    monotonic.now_s = CACHE_S
    assert auth.recognise(bearing("sk-r")) is None
    assert (await auth.identify(bearing("sk-r"))).key_id == "acme-r"
    assert recognised(auth, "sk-r").key_id == "acme-r"


# Changes


async def test_news_of_a_revoked_key_end_it_at_once() -> None:
    directory = FakeDirectory({"sk-r": REMOTE})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    await auth.identify(bearing("sk-r"))
    directory.keys.clear()
    auth.forget("key:acme-r")
    await refusal(auth, bearing("sk-r"))


def test_without_a_directory_news_mean_nothing() -> None:
    auth = authenticator()
    auth.forget("all")
    assert recognised(auth, SECRET).key_id == "acme-1"


async def test_a_changed_file_is_in_force_at_once() -> None:
    auth = authenticator()
    auth.replace(FileDirectory([TenantSettings(id="acme", max_concurrency=9)], [file_key("sk-new", "new")]))
    caller = recognised(auth, "sk-new")
    assert (caller.tenant.max_concurrency, caller.key_id) == (9, "new")
    await refusal(auth, bearing(SECRET))


async def test_a_changed_file_changes_the_tenants_of_the_directory_s_keys_even_while_that_is_away() -> None:
    directory = FakeDirectory({"sk-r": REMOTE})
    auth = Authenticator(FILE, SALT_SECRET, directory=directory)
    await auth.identify(bearing("sk-r"))
    directory.is_away = True
    auth.replace(FileDirectory([TenantSettings(id="acme", max_concurrency=9)], []))
    assert recognised(auth, "sk-r").tenant.max_concurrency == 9
    auth.replace(FileDirectory([], []))
    assert recognised(auth, "sk-r").tenant is REMOTE.tenant


async def test_closing_ends_what_is_being_asked() -> None:
    directory, monotonic = FakeDirectory({"sk-r": REMOTE}), Clock(0.0)
    auth = Authenticator(FILE, SALT_SECRET, directory=directory, monotonic=monotonic)
    await auth.identify(bearing("sk-r"))
    await directory.asked()
    directory.hold()
    monotonic.now_s = CACHE_S - 1
    assert recognised(auth, "sk-r").key_id == "acme-r"
    await directory.asked()
    await auth.aclose()
    assert directory.busy == 0
    await quiet()
    await authenticator().aclose()


# Cache salts


def salt_of(name: str) -> str:
    return hmac.new(SALT_SECRET, name.encode(), hashlib.sha256).hexdigest()


def test_the_cache_salt_is_a_keyed_hash_of_the_tenant() -> None:
    auth = authenticator()
    assert recognised(auth, SECRET).cache_salt == recognised(auth, "sk-2").cache_salt == salt_of("acme")
    elsewhere = Authenticator(FILE, b"other")
    assert recognised(elsewhere, SECRET).cache_salt != salt_of("acme")


def test_tenants_of_a_group_share_a_salt_that_is_no_tenant_s() -> None:
    tenants = [
        TenantSettings(id="a", cache_group="twins"),
        TenantSettings(id="b", cache_group="twins"),
        TenantSettings(id="twins"),
    ]
    auth = authenticator(FileDirectory(tenants, [file_key(of.id, of.id, of.id) for of in tenants]))
    salts = [recognised(auth, of.id).cache_salt for of in tenants]
    assert salts == [salt_of("group:twins"), salt_of("group:twins"), salt_of("twins")]


async def test_a_key_of_the_directory_has_its_tenant_s_salt() -> None:
    auth = Authenticator(FILE, SALT_SECRET, directory=FakeDirectory({"sk-r": REMOTE}))
    assert (await auth.identify(bearing("sk-r"))).cache_salt == salt_of("acme")

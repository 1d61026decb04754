"""Who is let in, as whom, and can two refusals be told apart?"""

import hashlib
import hmac

import pytest

from gateway.auth import Authenticator, Key
from gateway.errors import Unauthorized
from gateway.model import Headers, Tenant

SECRET = "sk-0123456789"
OTHER = "sk-other"
ACME, GLOBEX = Tenant("acme"), Tenant("globex", max_concurrency=1)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


KEYS = {Key("acme-1", digest(SECRET)): ACME, Key("globex-1", digest(OTHER)): GLOBEX}


def bearing(value: bytes) -> Headers:
    return [(b"host", b"localhost"), (b"authorization", value)]


def test_a_key_names_its_tenant_and_itself() -> None:
    auth = Authenticator(KEYS, b"secret")
    acme, globex = (auth.identify(bearing(b"Bearer " + key.encode())) for key in (SECRET, OTHER))
    assert (acme.tenant, acme.key_id) == (ACME, "acme-1")
    assert (globex.tenant, globex.key_id) == (GLOBEX, "globex-1")


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
def test_the_scheme_is_read_in_any_case(scheme: bytes) -> None:
    assert Authenticator(KEYS, b"secret").identify(bearing(scheme + b" " + SECRET.encode())).tenant is ACME


REFUSED: dict[str, Headers] = {
    "missing": [],
    "empty": bearing(b""),
    "no scheme": bearing(SECRET.encode()),
    "scheme alone": bearing(b"Bearer"),
    "scheme and space": bearing(b"Bearer "),
    "other scheme": bearing(b"Basic " + SECRET.encode()),
    "unknown": bearing(b"Bearer sk-unknown"),
    "beginning of a key": bearing(b"Bearer " + SECRET[:-1].encode()),
    "more than a key": bearing(b"Bearer " + SECRET.encode() + b"0"),
    "space after it": bearing(b"Bearer " + SECRET.encode() + b" "),
    "two spaces": bearing(b"Bearer  " + SECRET.encode()),
    "line break after it": bearing(b"Bearer " + SECRET.encode() + b"\n"),
    "other case": bearing(b"Bearer " + SECRET.upper().encode()),
    "the hash of a key": bearing(b"Bearer " + digest(SECRET).encode()),
    "too long": bearing(b"Bearer " + b"k" * 100_000),
    "not ASCII": bearing(b"Bearer sk-\xc3\xa9"),
    "twice": [*bearing(b"Bearer " + SECRET.encode()), *bearing(b"Bearer " + SECRET.encode())],
    "in another header": [(b"x-api-key", SECRET.encode())],
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
def test_all_others_get_one_and_the_same_refusal(headers: Headers) -> None:
    with pytest.raises(Unauthorized) as caught:
        Authenticator(KEYS, b"secret").identify(headers)
    error = caught.value
    assert (error.status, error.body(), error.detail) == (401, Unauthorized().body(), "")


@pytest.mark.parametrize(("length", "known"), [(512, True), (513, False)])
def test_the_longest_key_has_512_bytes(length: int, known: bool) -> None:
    key = "k" * length
    auth = Authenticator({Key("long", digest(key)): ACME}, b"secret", anonymous=GLOBEX)
    assert (auth.identify(bearing(b"Bearer " + key.encode())).tenant is ACME) == known


@pytest.mark.parametrize("headers", [REFUSED["missing"], REFUSED["unknown"]])
def test_where_no_key_is_required_everyone_else_is_anonymous(headers: Headers) -> None:
    auth = Authenticator(KEYS, b"secret", anonymous=Tenant("anonymous"))
    stranger = auth.identify(headers)
    assert (stranger.tenant.id, stranger.key_id) == ("anonymous", "")
    assert auth.identify(bearing(b"Bearer " + SECRET.encode())).tenant is ACME


def test_the_cache_salt_is_a_keyed_hash_of_the_tenant() -> None:
    salt = Authenticator(KEYS, b"secret").identify(bearing(b"Bearer " + SECRET.encode())).cache_salt
    assert salt == hmac.new(b"secret", b"acme", hashlib.sha256).hexdigest()


def test_the_cache_salt_is_one_for_a_tenant_and_another_for_others_and_for_another_secret() -> None:
    second = Key("acme-2", digest("sk-second"))
    auth = Authenticator(KEYS | {second: ACME}, b"secret")
    acme = auth.identify(bearing(b"Bearer " + SECRET.encode())).cache_salt
    assert auth.identify(bearing(b"Bearer sk-second")).cache_salt == acme
    elsewhere = Authenticator(KEYS, b"other").identify(bearing(b"Bearer " + SECRET.encode())).cache_salt
    globex = auth.identify(bearing(b"Bearer " + OTHER.encode())).cache_salt
    assert len({acme, elsewhere, globex}) == 3

"""Does the admin API open to its own key, and to nothing else?"""

import pytest

from gateway.admin.access import AdminApiClosed, AdminKey
from gateway.errors import Unauthorized
from gateway.model import Headers
from tests.conftest import sha256

SECRET = "sk-admin-0123456789"


def bearing(value: bytes) -> Headers:
    return [(b"host", b"localhost"), (b"authorization", value)]


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
def test_the_key_opens(scheme: bytes) -> None:
    AdminKey(sha256(SECRET)).check(bearing(scheme + b" " + SECRET.encode()))


REFUSED: dict[str, Headers] = {
    "missing": [],
    "empty": bearing(b""),
    "no scheme": bearing(SECRET.encode()),
    "scheme alone": bearing(b"Bearer"),
    "scheme and space": bearing(b"Bearer "),
    "other scheme": bearing(b"Basic " + SECRET.encode()),
    "unknown": bearing(b"Bearer sk-unknown"),
    "beginning of the key": bearing(b"Bearer " + SECRET[:-1].encode()),
    "more than the key": bearing(b"Bearer " + SECRET.encode() + b"0"),
    "space after it": bearing(b"Bearer " + SECRET.encode() + b" "),
    "two spaces": bearing(b"Bearer  " + SECRET.encode()),
    "line break after it": bearing(b"Bearer " + SECRET.encode() + b"\n"),
    "other case": bearing(b"Bearer " + SECRET.upper().encode()),
    "the hash of the key": bearing(b"Bearer " + sha256(SECRET).encode()),
    "too long": bearing(b"Bearer " + b"k" * 100_000),
    "not ASCII": bearing(b"Bearer sk-\xc3\xa9"),
    "twice": [*bearing(b"Bearer " + SECRET.encode()), *bearing(b"Bearer " + SECRET.encode())],
    "in another header": [(b"x-api-key", SECRET.encode())],
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
def test_all_else_gets_one_and_the_same_refusal(headers: Headers) -> None:
    with pytest.raises(Unauthorized) as caught:
        AdminKey(sha256(SECRET)).check(headers)
    assert caught.value.body() == Unauthorized().body()


@pytest.mark.parametrize(("length", "opens"), [(512, True), (513, False)])
def test_the_longest_key_has_512_bytes(length: int, opens: bool) -> None:
    key = AdminKey(sha256("k" * length))
    headers = bearing(b"Bearer " + b"k" * length)
    if opens:
        key.check(headers)
    else:
        with pytest.raises(Unauthorized):
            key.check(headers)


@pytest.mark.parametrize("headers", [[], bearing(b"Bearer "), bearing(b"Bearer " + SECRET.encode())])
@pytest.mark.parametrize("no_hash", [None, ""])
def test_without_a_key_it_is_closed_and_says_how_to_make_one(headers: Headers, no_hash: str | None) -> None:
    with pytest.raises(AdminApiClosed) as caught:
        AdminKey(no_hash).check(headers)
    error = caught.value
    assert (error.status, error.type, error.code) == (403, "permission_denied", "admin_api_closed")
    assert "gateway keys admin" in error.message

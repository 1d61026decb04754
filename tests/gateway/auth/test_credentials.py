"""Is one key presented, or nothing that is worth looking up?"""

import pytest

from gateway.auth.credentials import digest_of
from gateway.headers import by_name
from gateway.model import Fields
from tests.gateway.auth.directories import SECRET, digest

KEY = SECRET.encode()


def authorized(*values: bytes, accept: tuple[bytes, ...] = (b"*/*",)) -> Fields:
    return by_name(
        [
            (b"host", b"localhost"),
            *((b"authorization", value) for value in values),
            *((b"accept", value) for value in accept),
        ]
    )


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER", b"bEaReR"])
def test_the_whole_key_is_hashed_after_the_scheme_in_any_case(scheme: bytes) -> None:
    assert digest_of(authorized(scheme + b" " + KEY)) == digest(SECRET)


NONE: dict[str, Fields] = {
    "no header": {},
    "another header": {b"x-api-key": KEY, b"proxy-authorization": b"Bearer " + KEY},
    "empty": authorized(b""),
    "no scheme": authorized(KEY),
    "scheme alone": authorized(b"Bearer"),
    "scheme and a blank": authorized(b"Bearer "),
    "scheme and a tab": authorized(b"Bearer\t" + KEY),
    "blank before": authorized(b" Bearer " + KEY),
    "two blanks": authorized(b"Bearer  " + KEY),
    "blank after": authorized(b"Bearer " + KEY + b" "),
    "line break after": authorized(b"Bearer " + KEY + b"\n"),
    "line break inside": authorized(b"Bearer " + KEY + b"\n" + KEY),
    "zero byte after": authorized(b"Bearer " + KEY + b"\0"),
    "delete character": authorized(b"Bearer " + KEY + b"\x7f"),
    "two in one": authorized(b"Bearer " + KEY + b", Bearer " + KEY),
    "other scheme": authorized(b"Basic " + KEY),
    "longer scheme": authorized(b"Bearerx " + KEY),
    "not ASCII": authorized("Bearer schlüssel".encode()),
    "not UTF-8": authorized(b"Bearer \xff\xfe"),
    "a scheme that is not ASCII": authorized("Bearer".replace("e", "é").encode() + b" " + KEY),
    "too long": authorized(b"Bearer " + b"k" * 513),
    "a megabyte": authorized(b"Bearer " + b"k" * 1_000_000),
    "twice": authorized(b"Bearer " + KEY, b"Bearer " + KEY),
    "a known one and another": authorized(b"Bearer " + KEY, b"Bearer x"),
    "another and a known one": authorized(b"", b"Bearer " + KEY),
    "a known one and an empty one": authorized(b"Bearer " + KEY, b""),
    "one in two parts": authorized(b"Bearer " + KEY[:5], KEY[5:]),
}


@pytest.mark.parametrize("fields", NONE.values(), ids=NONE.keys())
def test_all_else_presents_no_key(fields: Fields) -> None:
    assert digest_of(fields) is None


def test_the_longest_key_has_512_bytes() -> None:
    assert digest_of(authorized(b"Bearer " + b"k" * 512)) == digest("k" * 512)


def test_other_headers_may_come_twice() -> None:
    assert digest_of(authorized(b"Bearer " + KEY, accept=(b"*/*", b"*/*"))) == digest(SECRET)

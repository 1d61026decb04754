"""Is what the directory said kept as long as it may be, and no longer?"""

import pytest

from gateway.auth.cache import (
    CACHE_S,
    INDEX_BYTES,
    MAX_ENTRIES,
    REFRESH_S,
    RETRY_S,
    STALE_S,
    Cache,
    Confirmed,
)
from gateway.model import Caller, Tenant
from tests.gateway.auth.directories import ACME, REMOTE, SECRET, Key, digest

CALLER = Caller(ACME, "acme-r", "salt")
NOW = 1000.0


def confirmed(secret: str = SECRET, found: Key = REMOTE, at: float = NOW) -> Confirmed:
    return Confirmed.at(at, digest(secret), found, CALLER)


def test_an_entry_holds_from_when_the_directory_was_asked() -> None:
    entry = confirmed(found=Key("acme-r", "acme", ACME, expires_at=5.0))

    assert (entry.caller, entry.expires_at, entry.confirmed_at) == (CALLER, 5.0, NOW)
    assert (entry.refresh_at, entry.good_until) == (NOW + REFRESH_S, NOW + CACHE_S)


def test_a_key_without_an_end_never_expires() -> None:
    assert confirmed().expires_at == float("inf")


@pytest.mark.parametrize("at", [0, INDEX_BYTES - 1, INDEX_BYTES, 31])
def test_all_bytes_of_a_hash_count(at: int) -> None:
    cache = Cache()
    cache.put(confirmed())
    other = bytearray(digest(SECRET))
    other[at] ^= 1

    assert cache.get(digest(SECRET)) is not None
    assert cache.get(bytes(other)) is None


def test_the_least_recently_used_key_makes_room() -> None:
    cache = Cache(max_entries=2)
    cache.put(confirmed("a"))
    cache.put(confirmed("b"))
    cache.get(digest("a"))
    cache.put(confirmed("c"))

    assert [cache.get(digest(secret)) is not None for secret in "abc"] == [True, False, True]


def test_a_key_that_is_confirmed_again_was_used() -> None:
    cache = Cache(max_entries=2)
    for secret in "abac":
        cache.put(confirmed(secret))

    assert [cache.get(digest(secret)) is not None for secret in "abc"] == [True, False, True]


def test_what_is_unknown_holds_for_ten_seconds() -> None:
    cache = Cache()
    cache.deny(digest("no"), NOW)

    assert cache.is_stranger(digest("no"), NOW + CACHE_S - 0.1)
    assert not cache.is_stranger(digest("no"), NOW + CACHE_S)
    assert not cache.is_stranger(digest(SECRET), NOW)


def test_random_keys_drive_out_the_oldest_of_their_own_kind_only() -> None:
    cache = Cache(max_entries=2)
    cache.put(confirmed())
    for secret in "abac":
        cache.deny(digest(secret), NOW)

    assert [cache.is_stranger(digest(secret), NOW) for secret in "abc"] == [True, False, True]
    assert cache.get(digest(SECRET)) is not None
    assert MAX_ENTRIES == 10_000


def test_a_key_is_either_known_or_unknown() -> None:
    cache = Cache()
    cache.deny(digest(SECRET), NOW)
    cache.put(confirmed())
    assert not cache.is_stranger(digest(SECRET), NOW)
    cache.deny(digest(SECRET), NOW)
    assert cache.get(digest(SECRET)) is None


def test_an_entry_outlasts_its_directory_for_two_seconds_at_a_time() -> None:
    cache = Cache()
    cache.put(confirmed())

    entry = cache.outlast(digest(SECRET), NOW + 100)

    assert entry is not None
    assert entry is cache.get(digest(SECRET))
    assert (entry.refresh_at, entry.good_until) == (NOW + 100 + RETRY_S, NOW + 100 + 2 * RETRY_S)


def test_a_fresh_entry_is_not_cut_short_by_a_directory_that_is_away() -> None:
    cache = Cache()
    cache.put(confirmed())

    entry = cache.outlast(digest(SECRET), NOW + REFRESH_S)

    assert entry is not None
    assert (entry.refresh_at, entry.good_until) == (NOW + REFRESH_S + RETRY_S, NOW + CACHE_S)


def test_an_entry_outlasts_its_directory_by_ten_minutes_in_all() -> None:
    cache = Cache()
    cache.put(confirmed())

    last = cache.outlast(digest(SECRET), NOW + STALE_S - 0.5)
    assert last is not None
    assert (last.refresh_at, last.good_until) == (NOW + STALE_S, NOW + STALE_S)
    assert cache.outlast(digest(SECRET), NOW + STALE_S) is None
    assert cache.outlast(digest("no"), NOW) is None


@pytest.mark.parametrize(
    ("what", "left"), [("key:a", "bc"), ("tenant:globex", "a"), ("key:globex", "abc"), ("workers", "abc")]
)
def test_news_drop_the_keys_that_they_name_and_all_that_was_unknown(what: str, left: str) -> None:
    cache = Cache()
    for key_id, tenant_id in (("a", "acme"), ("b", "globex"), ("c", "globex")):
        cache.put(confirmed(key_id, Key(key_id, tenant_id)))
    cache.deny(digest("no"), NOW)

    cache.forget(what)

    assert [secret for secret in "abc" if cache.get(digest(secret))] == list(left)
    assert not cache.is_stranger(digest("no"), NOW)


def test_an_entry_in_doubt_is_stale_and_can_outlast_its_directory_still() -> None:
    cache = Cache()
    cache.put(confirmed())
    cache.deny(digest("no"), NOW)

    cache.doubt()

    entry = cache.get(digest(SECRET))
    assert entry is not None
    assert max(entry.refresh_at, entry.good_until) < NOW
    assert not cache.is_stranger(digest("no"), NOW)
    assert cache.outlast(digest(SECRET), NOW) is entry
    assert entry.good_until == NOW + 2 * RETRY_S


def test_a_changed_file_changes_whose_the_keys_are() -> None:
    cache = Cache()
    cache.put(confirmed())
    cache.put(confirmed("gone", Key("gone", "nowhere")))
    cache.deny(digest("no"), NOW)
    changed = Caller(Tenant("acme", max_concurrency=9), "acme-r", "salt")

    cache.revise(lambda found: changed if found.tenant_id == "acme" else None)

    entry = cache.get(digest(SECRET))
    assert entry is not None
    assert entry.caller is changed
    assert cache.get(digest("gone")) is None
    assert not cache.is_stranger(digest("no"), NOW)

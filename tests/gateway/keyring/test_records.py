"""Is a record's state what its times say, and does no record show a secret?"""

import msgspec
import pytest

from gateway.keyring import KeyRecord, NewKey, SecretRecord

NOW = 1_800_000_000.0
DIGEST = "ab" * 32


def record(*ends: float | None, revoked_at: float | None = None) -> KeyRecord:
    """A key with a secret that expires at each of `ends`."""
    return KeyRecord("acme-1", "acme", tuple(SecretRecord(DIGEST, end) for end in ends), NOW, revoked_at)


@pytest.mark.parametrize(
    ("key", "state"),
    [
        (record(None), "active"),
        (record(NOW + 1), "active"),
        (record(NOW), "expired"),
        (record(NOW - 1, None), "active"),
        (record(NOW - 1, NOW + 1), "active"),
        (record(NOW - 1, NOW), "expired"),
        (record(None, revoked_at=NOW - 1), "revoked"),
        (record(NOW - 1, revoked_at=NOW - 2), "revoked"),
    ],
)
def test_a_key_is_active_while_one_of_its_secrets_is_good_and_nobody_revoked_it(
    key: KeyRecord, state: str
) -> None:
    assert key.state(NOW) == state


@pytest.mark.parametrize(
    ("key", "expires_at"),
    [(record(None), None), (record(5.0), 5.0), (record(5.0, 7.0), 7.0), (record(None, 7.0), None)],
)
def test_a_key_expires_when_the_last_of_its_secrets_does(key: KeyRecord, expires_at: float | None) -> None:
    assert key.expires_at == expires_at


def test_a_record_comes_back_from_json_as_it_was() -> None:
    key = record(None, NOW, revoked_at=NOW)

    assert msgspec.json.decode(msgspec.json.encode(key), type=KeyRecord) == key


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"a","tenant":"t","secrets":[{"sha256":"00"}],"networks":["10.0.0.0/8"]}',
        '{"id":"a","tenant":"t","secrets":[{"sha256":"00","networks":["10.0.0.0/8"]}]}',
        '{"id":"a","tenant":"t","secrets":[]}',
        '{"id":"a","secrets":[{"sha256":"00"}]}',
    ],
)
def test_a_record_that_is_not_wholly_understood_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=KeyRecord)


def test_a_new_key_does_not_show_its_secret_when_it_is_printed() -> None:
    new = NewKey(record(None), "sk-very-secret")

    assert "sk-very-secret" not in f"{new} {new!r} {[new]}"
    assert "acme-1" in repr(new)

"""Keys over the admin API: list, create, rotate, revoke."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from gateway.admin.operations import Asked, Nothing, Operation, Operations, Shown
from gateway.errors import BadRequest
from gateway.keyring import KeyRecord, Keyring, NewKey, State
from gateway.keyring.records import Source
from gateway.settings import Section
from gateway.settings.values import AwareTime, Identifier

CENTURY_S = 36525 * 86400
YEAR_S = 365 * 86400


class KeyQuery(Section):
    tenant: Identifier | None = None
    """Only this tenant's keys."""


class KeyRequest(Section):
    tenant: Identifier
    """Whose key it is to be."""
    id: Identifier | None = None
    """Its name in logs; not secret. Left out: one is made up."""
    expires_in_s: Annotated[int, Field(ge=1, le=CENTURY_S)] | None = None
    """Seconds from now until it is refused. Left out: never, or expires_at."""
    expires_at: AwareTime | None = None
    """From then on it is refused, as 2027-01-31T00:00:00Z. Left out: never, or expires_in_s."""


class RotationRequest(Section):
    grace_s: Annotated[int, Field(ge=0, le=YEAR_S)] = 3600
    """Seconds for which the old secret stays good."""


class Key(Shown):
    """A key, by which no request can be made: neither a secret nor a hash is told."""

    object: Literal["key"] = "key"
    id: str
    tenant: str
    state: State
    created_at: datetime | None
    """null: not known, as of keys in the configuration file."""
    expires_at: datetime | None
    """null: never."""
    source: Source
    """Where it is kept. Those of the configuration file are changed there."""


class KeyWithSecret(Key):
    """A key and its newest secret, which is shown this once."""

    key: str
    """The secret. Only its hash is kept."""


class KeyList(Shown):
    object: Literal["list"] = "list"
    data: list[Key]


class Keys:
    """clock: seconds since 1970."""

    def __init__(self, keyring: Keyring, clock: Callable[[], float]) -> None:
        self._keyring = keyring
        self._clock = clock

    def operations(self) -> Operations:
        path, one, rotation = "/admin/keys", "/admin/keys/{id}", "/admin/keys/{id}/rotate"
        unlike = (404, 409)
        yield Operation("listKeys", "GET", path, self.all, KeyQuery, KeyList)
        yield Operation("createKey", "POST", path, self.create, KeyRequest, KeyWithSecret, 201, unlike)
        yield Operation(
            "rotateKey", "POST", rotation, self.rotate, RotationRequest, KeyWithSecret, also=unlike
        )
        yield Operation("revokeKey", "DELETE", one, self.revoke, Nothing, Key, also=unlike)

    async def all(self, asked: Asked[KeyQuery]) -> KeyList:
        """All keys, or a tenant's, with those that are no longer good."""
        return KeyList(data=[self._shown(record) for record in await self._keyring.keys(asked.fields.tenant)])

    async def create(self, asked: Asked[KeyRequest]) -> KeyWithSecret:
        """Create a key. The answer holds its secret, which is shown this once."""
        wanted = asked.fields
        return self._revealed(await self._keyring.create(wanted.tenant, wanted.id, self._expiry(wanted)))

    async def rotate(self, asked: Asked[RotationRequest]) -> KeyWithSecret:
        """Give a key a new secret, which is shown this once.

        The old secret stays good for grace_s, but no longer than it would have been.
        """
        return self._revealed(await self._keyring.rotate(asked.id, asked.fields.grace_s))

    async def revoke(self, asked: Asked[Nothing]) -> Key:
        """Revoke a key.

        Every process of every replica refuses it within 2 seconds, or within 10 if the news is lost.
        """
        return self._shown(await self._keyring.revoke(asked.id))

    def _expiry(self, wanted: KeyRequest) -> float | None:
        if wanted.expires_at is None:
            return None if wanted.expires_in_s is None else self._clock() + wanted.expires_in_s
        if wanted.expires_in_s is not None:
            raise BadRequest("Send expires_in_s or expires_at, not both.", param="expires_at")
        return wanted.expires_at.timestamp()

    def _shown(self, record: KeyRecord) -> Key:
        return Key(
            id=record.id,
            tenant=record.tenant,
            state=record.state(self._clock()),
            created_at=_utc(record.created_at),
            expires_at=_utc(record.expires_at),
            source=record.source,
        )

    def _revealed(self, new: NewKey) -> KeyWithSecret:
        return KeyWithSecret(**dict(self._shown(new.record)), key=new.secret)


def _utc(seconds: float | None) -> datetime | None:
    """Seconds since 1970 → a time in whole seconds, the earlier one."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)

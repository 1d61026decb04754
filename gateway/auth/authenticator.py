"""Who calls? A key of the file, a key of the directory, anonymous, or nobody."""

import hmac
import logging
import time
from collections.abc import Callable
from math import inf

from gateway.auth.cache import INDEX_BYTES, NOBODY, Entry
from gateway.auth.credentials import digest_of
from gateway.auth.directory import Directory, FileDirectory, Found
from gateway.auth.lookups import Lookups
from gateway.errors import Unauthorized
from gateway.model import Caller, Fields, Grant, Tenant

log = logging.getLogger(__name__)


class Authenticator:
    """Looks keys up by hash.

    salt_secret: makes the callers' cache salts.
    directory: where keys are that the file does not have.
    anonymous: who everybody without a known key is; as the file has this tenant, if it does.
    clock: seconds since 1970. monotonic: seconds.
    """

    def __init__(
        self,
        file: FileDirectory,
        salt_secret: bytes,
        *,
        directory: Directory | None = None,
        anonymous: Tenant | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._salt_secret = salt_secret
        self._stranger = anonymous
        self._clock = clock
        self._lookups = Lookups(directory, self._caller_of, monotonic) if directory else None
        self.replace(file)

    def recognise(self, fields: Fields) -> Caller | None:
        """The caller, if it can be told without waiting. If not, `identify` tells or refuses."""
        digest = digest_of(fields)
        entry = NOBODY if digest is None else self._known(digest)
        if entry is None:
            return None
        return entry.caller if self._clock() < entry.expires_at else self._anonymous

    async def identify(self, fields: Fields) -> Caller:
        """The caller. Raises Unauthorized, the same for every reason; StoreUnavailable."""
        digest = digest_of(fields)
        entry = NOBODY if digest is None else await self._find(digest)
        caller = entry.caller if self._clock() < entry.expires_at else self._anonymous
        if caller is None:
            raise Unauthorized
        return caller

    def replace(self, file: FileDirectory) -> None:
        """The tenants and keys of a changed file hold from the next request on."""
        self._file = file
        self._keys = {digest[:INDEX_BYTES]: self._entry(digest, of) for digest, of in file.grants.items()}
        self._anonymous: Caller | None = None
        if self._stranger is not None:
            self._anonymous = self._caller(file.tenants.get(self._stranger.id, self._stranger), "")
        if self._lookups is not None:
            self._lookups.revise()

    def forget(self, what: str) -> None:
        """News of the directory: "key:<id>" or "tenant:<id>" has changed; "all": anything may have."""
        if self._lookups is not None:
            self._lookups.forget(what)

    async def aclose(self) -> None:
        """End what is still being asked. The directory must be open until then."""
        if self._lookups is not None:
            await self._lookups.aclose()

    def _known(self, digest: bytes) -> Entry | None:
        entry = self._of_file(digest)
        if entry is None:
            return NOBODY if self._lookups is None else self._lookups.known(digest)
        return entry

    async def _find(self, digest: bytes) -> Entry:
        entry = self._of_file(digest)
        if entry is None:
            return NOBODY if self._lookups is None else await self._lookups.find(digest)
        return entry

    def _of_file(self, digest: bytes) -> Entry | None:
        entry = self._keys.get(digest[:INDEX_BYTES])
        return entry if entry is not None and hmac.compare_digest(entry.digest, digest) else None

    def _entry(self, digest: bytes, grant: Grant) -> Entry:
        expires_at = inf if grant.expires_at is None else grant.expires_at
        return Entry(digest=digest, caller=self._caller(grant.tenant, grant.key_id), expires_at=expires_at)

    def _caller_of(self, found: Found) -> Caller | None:
        """A tenant of the file goes before one of the directory with the same id."""
        tenant = self._file.tenants.get(found.tenant_id, found.tenant)
        if tenant is None:
            log.warning(
                "key %s is refused: its tenant %s is neither in the file nor in the store",
                found.key_id,
                found.tenant_id,
            )
            return None
        return self._caller(tenant, found.key_id)

    def _caller(self, tenant: Tenant, key_id: str) -> Caller:
        # No id of a tenant has a colon in it, so a group never has the salt of a tenant of its name.
        sharing = f"group:{tenant.cache_group}" if tenant.cache_group else tenant.id
        return Caller(tenant, key_id, hmac.digest(self._salt_secret, sharing.encode(), "sha256").hex())

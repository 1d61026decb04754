"""What holds while the shared store of limits is away?

local: each process keeps its part of every limit in its own memory, beginning from what the store last
told; closed: tenants with limits are refused; open: nothing is limited. When the store is back it is told
what was granted meanwhile, so that nothing is spent twice.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from gateway.errors import StoreUnavailable
from gateway.model import Quotas, Tenant, Verdict
from gateway.stores import rates
from gateway.stores.memory import MemoryStore

log = logging.getLogger(__name__)

SHARE = 0.8  # of a limit that all processes together grant: another process may not be counted yet


class SharedStore(Protocol):
    """A LimitStore outside this process. take() and look() raise StoreUnavailable while it is away."""

    on_up: Callable[[], None]
    on_down: Callable[[str], None]

    @property
    def is_up(self) -> bool: ...
    @property
    def processes(self) -> int: ...
    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict: ...
    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None: ...
    async def look(self, tenant: Tenant) -> Quotas: ...
    def last_known(self, tenant: Tenant) -> tuple[list[float], list[str]]: ...
    def impose(self, lease: str, tenant: Tenant, amounts: Sequence[float]) -> None: ...


class _Part:
    """What this process has granted of one tenant's limits since the store went away."""

    def __init__(self, tenant: Tenant, share: Tenant) -> None:
        self.tenant = tenant
        self.share = share  # the tenant with this process's part of its limits
        self.reserved: dict[str, int] = {}  # tokens by lease of the requests that run
        self.requests = self.tokens = 0  # of those that ended


class FallbackLimits:
    """A LimitStore over another, which may be away."""

    def __init__(
        self,
        store: SharedStore,
        on_failure: Literal["local", "closed", "open"],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._on_failure = on_failure
        self._clock = clock
        self._memory = MemoryStore(clock)
        self._parts: dict[str, _Part] = {}
        self._granted_here: dict[str, _Part] = {}  # by lease
        self._away_since: float | None = None
        store.on_up = self._came_up
        store.on_down = self._went_down

    @property
    def is_degraded(self) -> bool:
        return self._away_since is not None

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        if self._store.is_up:
            try:
                return await self._store.take(lease, tenant, tokens)
            except StoreUnavailable:
                pass  # it went away just now
        if not rates.is_limited(tenant):
            return Verdict(Quotas())
        if self._on_failure == "closed":
            raise StoreUnavailable
        part = self._part(tenant)
        if self._on_failure == "open":
            verdict = Verdict(Quotas())
        else:
            verdict = await self._memory.take(lease, part.share, tokens)
        if not verdict.refused:
            part.reserved[lease] = tokens
            self._granted_here[lease] = part
        if self._store.is_up:  # it is back already
            self._hand_all_over()
        return _marked(verdict, self._on_failure)

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        part = self._granted_here.pop(lease, None)
        if part is None:
            self._store.settle(lease, tenant, reserved, used)
            if self.is_degraded and tenant.id in self._parts:
                self._memory.settle(lease, self._parts[tenant.id].share, 0, 0)
            return
        del part.reserved[lease]
        self._memory.settle(lease, part.share, reserved, used)
        if used is not None:
            part.requests += 1
            part.tokens += used

    async def look(self, tenant: Tenant) -> Quotas:
        if self._store.is_up:
            try:
                return await self._store.look(tenant)
            except StoreUnavailable:
                pass
        if not rates.is_limited(tenant):
            return Quotas()
        if self._on_failure != "local":
            return Quotas(degraded=self._on_failure)
        return _mark(await self._memory.look(self._part(tenant).share), "local")

    def _part(self, tenant: Tenant) -> _Part:
        part = self._parts.get(tenant.id)
        if part is None:
            part = self._parts[tenant.id] = _Part(tenant, _share(tenant, self._store.processes))
            self._memory.begin(part.share, *self._store.last_known(tenant))
        elif part.tenant is not tenant:
            part.tenant, part.share = tenant, _share(tenant, self._store.processes)
        return part

    def _went_down(self, reason: str) -> None:
        if self._away_since is None:
            self._away_since = self._clock()
            self._parts.clear()  # of one who only looked, as it went away before
            log.warning(
                'Redis is away (%s): store.on_failure = "%s" holds. See that the Redis of store.url runs',
                reason,
                self._on_failure,
            )

    def _came_up(self) -> None:
        if self._away_since is None:
            return
        log.warning("Redis answers again after %.1f s: limits are shared", self._clock() - self._away_since)
        self._away_since = None
        self._hand_all_over()

    def _hand_all_over(self) -> None:
        for part in self._parts.values():
            self._hand_over(part)
        self._parts.clear()
        self._granted_here.clear()
        self._memory = MemoryStore(self._clock)

    def _hand_over(self, part: _Part) -> None:
        for lease, tokens in part.reserved.items():
            self._store.impose(lease, part.tenant, (1, tokens, 1, tokens))
        spent = (part.requests, part.tokens, part.requests, part.tokens)
        if part.requests:
            # What has come back in the meantime is not owed any more.
            owed = self._memory.taken(part.share) if self._on_failure == "local" else _whole(part.tenant)
            self._store.impose("", part.tenant, [min(pair) for pair in zip(spent, owed, strict=True)])


def _share(tenant: Tenant, processes: int) -> Tenant:
    """The tenant with one process's part of its limits, of each at least one."""
    names = (*(rate.field for rate in rates.RATES), "max_concurrency")
    limits = {name: getattr(tenant, name) for name in names}
    parts: dict[str, Any] = {
        name: None if limit is None else max(1, int(limit * SHARE / processes))
        for name, limit in limits.items()
    }
    return replace(tenant, **parts)


def _whole(tenant: Tenant) -> list[float]:
    return [limit or 0 for limit in rates.limits_of(tenant)]


def _marked(verdict: Verdict, policy: str) -> Verdict:
    return Verdict(
        _mark(verdict.quotas, policy),
        verdict.refused,
        verdict.retry_after_s,
        verdict.limit,
        verdict.period_s,
    )


def _mark(quotas: Quotas, policy: str) -> Quotas:
    return Quotas(quotas.requests, quotas.tokens, policy)

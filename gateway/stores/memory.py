"""Limits counted in this process, for one process and no other.

Requests and tokens a minute follow the generic cell rate algorithm (ITU-T I.371, annex A): per limit one
number, the theoretical arrival time (TAT), which is when the limit will be full again. A minute's worth may
be taken at once, and it refills continuously.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.model import Quota, Quotas, Tenant, Verdict

PERIOD_S = 60.0


@dataclass(slots=True)
class _Account:
    requests_tat: float = 0.0
    tokens_tat: float = 0.0
    leases: set[str] = field(default_factory=set)


class MemoryStore:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        now = self._clock()
        account = self._account(tenant)
        requests_tat, requests_wait = _advance(account.requests_tat, tenant.requests_per_minute, 1, now)
        tokens_tat, tokens_wait = _advance(account.tokens_tat, tenant.tokens_per_minute, tokens, now)
        if requests_wait or tokens_wait:
            longest = "requests" if requests_wait > tokens_wait else "tokens"
            return Verdict(_quotas(account, tenant, now), longest, max(requests_wait, tokens_wait))
        if tenant.max_concurrency is not None and len(account.leases) >= tenant.max_concurrency:
            return Verdict(_quotas(account, tenant, now), "concurrency", 1.0)
        account.requests_tat, account.tokens_tat = requests_tat, tokens_tat
        account.leases.add(lease)
        return Verdict(_quotas(account, tenant, now))

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        account = self._account(tenant)
        if lease not in account.leases:
            return
        account.leases.remove(lease)
        now = self._clock()
        account.tokens_tat = _give_back(
            account.tokens_tat, tenant.tokens_per_minute, reserved - (used or 0), now
        )
        if used is None:
            account.requests_tat = _give_back(account.requests_tat, tenant.requests_per_minute, 1, now)

    async def look(self, tenant: Tenant) -> Quotas:
        return _quotas(self._account(tenant), tenant, self._clock())

    def leases(self, tenant: Tenant) -> int:
        """Slots in use."""
        return len(self._account(tenant).leases)

    def _account(self, tenant: Tenant) -> _Account:
        account = self._accounts.get(tenant.id)
        if account is None:
            account = self._accounts[tenant.id] = _Account()
        return account


def _advance(tat: float, limit: int | None, cost: int, now: float) -> tuple[float, float]:
    """The TAT after taking `cost`, and how long to wait until that is allowed (0 or less: now)."""
    if limit is None:
        return tat, 0.0
    after = (tat if tat > now else now) + cost * PERIOD_S / limit  # max() would be a call
    wait = after - now - PERIOD_S
    return after, wait if wait > 1e-6 else 0.0  # the sum of many small steps must not refuse the last one


def _give_back(tat: float, limit: int | None, amount: int, now: float) -> float:
    """The TAT after a refund; a negative amount is a debt, which may exceed the limit."""
    if limit is None:
        return tat
    return max(max(tat, now) - amount * PERIOD_S / limit, now)


def _quotas(account: _Account, tenant: Tenant, now: float) -> Quotas:
    return Quotas(
        _quota(account.requests_tat, tenant.requests_per_minute, now),
        _quota(account.tokens_tat, tenant.tokens_per_minute, now),
    )


def _quota(tat: float, limit: int | None, now: float) -> Quota | None:
    if limit is None:
        return None
    reset_s = tat - now
    if reset_s <= 0:
        return Quota(limit, limit, 0.0)
    remaining = int((PERIOD_S - reset_s) * limit / PERIOD_S + 1e-6)
    return Quota(limit, remaining if remaining > 0 else 0, reset_s)

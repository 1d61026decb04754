"""Limits counted in this process, for one process and no other.

Requests and tokens a minute follow the generic cell rate algorithm (ITU-T I.371, annex A): per limit one
number, the theoretical arrival time (TAT), which is when the limit will be full again. A minute's worth may
be taken at once, and it refills continuously.
"""

import time
from collections.abc import Callable

from gateway.model import Quota, Quotas, Tenant, Verdict

PERIOD_S = 60.0
ROUNDING_S = 1e-6  # the sum of many small steps must not refuse the last one


class _Account:
    """One tenant's state."""

    __slots__ = ("leases", "requests_tat", "tokens_tat")

    def __init__(self) -> None:
        self.requests_tat = self.tokens_tat = 0.0
        self.leases: set[str] = set()


class MemoryStore:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        now = self._clock()
        account = self._accounts.get(tenant.id) or self._account(tenant)
        requests_tat, tokens_tat = account.requests_tat, account.tokens_tat
        if tenant.requests_per_minute is not None:
            before = requests_tat if requests_tat > now else now
            requests_tat = before + PERIOD_S / tenant.requests_per_minute
        if tenant.tokens_per_minute is not None:
            before = tokens_tat if tokens_tat > now else now
            tokens_tat = before + tokens * PERIOD_S / tenant.tokens_per_minute
        latest = now + PERIOD_S + ROUNDING_S
        if requests_tat > latest or tokens_tat > latest:
            kind = "requests" if requests_tat > tokens_tat else "tokens"
            return Verdict(
                _quotas(account, tenant, now), kind, max(requests_tat, tokens_tat) - now - PERIOD_S
            )
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


def _give_back(tat: float, limit: int | None, amount: int, now: float) -> float:
    """The TAT after a refund; a negative amount is a debt, which may exceed the limit."""
    if limit is None:
        return tat
    return max(max(tat, now) - amount * PERIOD_S / limit, now)


def _quotas(account: _Account, tenant: Tenant, now: float) -> Quotas:
    requests, tokens = tenant.requests_per_minute, tenant.tokens_per_minute
    return Quotas(
        None if requests is None else _quota(account.requests_tat - now, requests),
        None if tokens is None else _quota(account.tokens_tat - now, tokens),
    )


def _quota(reset_s: float, limit: int) -> Quota:
    if reset_s <= 0:
        return Quota(limit, limit, 0.0)
    remaining = int((PERIOD_S - reset_s) * limit / PERIOD_S + 1e-6)
    return Quota(limit, remaining if remaining > 0 else 0, reset_s)

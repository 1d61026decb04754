"""Limits counted in this process, for one process and no other."""

import time
from collections.abc import Callable, Iterable, Sequence

from gateway.model import Quotas, Tenant, Verdict
from gateway.stores import rates

ROUNDING_S = 1e-6  # the sum of many small steps must not refuse the last one


class _Account:
    """One tenant's state."""

    __slots__ = ("leases", "limits", "spans", "tats", "tenant")

    def __init__(self, tenant: Tenant) -> None:
        self.leases: set[str] = set()
        self.tats = [0.0] * len(rates.RATES)
        self.limits: rates.Limits = (None, None, None, None)
        self.adopt(tenant, 0.0)

    def adopt(self, tenant: Tenant, now: float) -> None:
        """From now on its limits are these. The amount that was used of them stays used."""
        before = self.limits
        self.tenant = tenant
        self.limits = rates.limits_of(tenant)
        for index, rate in enumerate(rates.RATES):
            left_s = max(0.0, self.tats[index] - now)
            self.tats[index] = now + rates.under(self.limits[index], before[index], left_s, rate.period_s)
        # Of each limit there is: its index, what one unit takes of the period, and the period.
        self.spans = [
            (index, rate.period_s / limit, rate.period_s, rate.counts == "tokens")
            for index, (rate, limit) in enumerate(zip(rates.RATES, self.limits, strict=True))
            if limit is not None
        ]

    def add(self, requests: int, tokens: int, now: float) -> None:
        """Negative amounts give back, down to nothing taken. A debt may exceed the limit."""
        tats = self.tats
        for index, unit_s, _, counts_tokens in self.spans:
            tat = tats[index] if tats[index] > now else now
            tats[index] = max(tat + (tokens if counts_tokens else requests) * unit_s, now)

    def quotas(self, now: float) -> Quotas:
        return rates.quotas(self.limits, [tat - now for tat in self.tats])


class MemoryStore:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        now = self._clock()
        account = self._account(tenant)
        longest_s, refusing = ROUNDING_S, -1
        for index, unit_s, period_s, counts_tokens in account.spans:
            tat = account.tats[index]
            wait_s = (tat - now if tat > now else 0) + (tokens if counts_tokens else 1) * unit_s - period_s
            if wait_s > longest_s:
                longest_s, refusing = wait_s, index
        if refusing >= 0:
            return rates.refusal(account.limits, refusing, longest_s, account.quotas(now))
        if tenant.max_concurrency is not None and len(account.leases) >= tenant.max_concurrency:
            return rates.no_slot(account.quotas(now))
        account.add(1, tokens, now)
        account.leases.add(lease)
        return Verdict(account.quotas(now))

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        account = self._account(tenant)
        if lease in account.leases:
            account.leases.remove(lease)
            account.add(-1 if used is None else 0, (used or 0) - reserved, self._clock())

    async def look(self, tenant: Tenant) -> Quotas:
        return self._account(tenant).quotas(self._clock())

    def leases(self, tenant: Tenant) -> int:
        """Slots in use."""
        return len(self._account(tenant).leases)

    def begin(self, tenant: Tenant, resets_s: Sequence[float], leases: Iterable[str]) -> None:
        """Take over from another store: when each of its limits will be full again, and who holds a slot."""
        account, now = self._account(tenant), self._clock()
        account.tats = [now + reset_s for reset_s in resets_s]
        account.leases.update(leases)

    def taken(self, tenant: Tenant) -> list[float]:
        """Of each of RATES: requests or tokens that were taken and have not come back yet."""
        account, now = self._account(tenant), self._clock()
        amounts = [0.0] * len(rates.RATES)
        for index, unit_s, _, _ in account.spans:
            amounts[index] = max(0.0, account.tats[index] - now) / unit_s
        return amounts

    def _account(self, tenant: Tenant) -> _Account:
        account = self._accounts.get(tenant.id)
        if account is None:
            account = self._accounts[tenant.id] = _Account(tenant)
        elif account.tenant is not tenant:  # looked up anew; seldom another
            if account.tenant != tenant:
                account.adopt(tenant, self._clock())
            account.tenant = tenant
        return account

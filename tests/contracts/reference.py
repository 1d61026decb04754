"""What limits must do, in exact fractions: buckets, full with a period's worth, that fill continuously."""

from fractions import Fraction

import pytest

from gateway.model import Quota, Quotas, Tenant
from gateway.stores.rates import RATES


class Bucket:
    """What one limit must do."""

    def __init__(self, limit: int | None, period_s: float) -> None:
        self.limit = limit
        self.period_s = Fraction(period_s)
        self.level = Fraction(limit or 0)

    def refill(self, elapsed_s: Fraction) -> None:
        if self.limit is not None:
            self.level = min(self.level + elapsed_s * self.limit / self.period_s, Fraction(self.limit))

    def holds(self, cost: int) -> bool:
        return self.limit is None or self.level >= cost

    def take(self, cost: int) -> None:
        if self.limit is not None:
            self.level = min(self.level - cost, Fraction(self.limit))

    @property
    def remaining(self) -> int:
        return max(self.level.__floor__(), 0)

    def check(self, quota: Quota) -> None:
        assert self.limit is not None
        missing = self.limit - self.level
        assert quota.limit == self.limit
        assert quota.remaining == self.remaining
        assert quota.reset_s == pytest.approx(float(missing * self.period_s / self.limit), abs=1e-5)


class Reference:
    """What a whole store must do, for one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self.buckets = [(rate.counts, Bucket(getattr(tenant, rate.field), rate.period_s)) for rate in RATES]
        self.slots = tenant.max_concurrency
        self.leases: dict[str, int] = {}

    def refill(self, elapsed_s: Fraction) -> None:
        for _, bucket in self.buckets:
            bucket.refill(elapsed_s)

    def refuses(self, tokens: int) -> set[str]:
        """The limits that stand against it."""
        costs = {"requests": 1, "tokens": tokens}
        against = {counts for counts, bucket in self.buckets if not bucket.holds(costs[counts])}
        if self.slots is not None and len(self.leases) >= self.slots:
            against.add("concurrency")
        return against

    def take(self, lease: str, tokens: int) -> None:
        self._add(1, tokens)
        self.leases[lease] = tokens

    def settle(self, lease: str, used: int | None) -> None:
        reserved = self.leases.pop(lease, None)
        if reserved is not None:
            self._add(-1 if used is None else 0, (used or 0) - reserved)

    def check(self, quotas: Quotas) -> None:
        """That of each kind the limit is told of which the least is left."""
        for counts, quota in (("requests", quotas.requests), ("tokens", quotas.tokens)):
            there = [bucket for of, bucket in self.buckets if of == counts and bucket.limit is not None]
            if not there:
                assert quota is None
                continue
            assert quota is not None
            min(there, key=lambda bucket: bucket.remaining).check(quota)

    def _add(self, requests: int, tokens: int) -> None:
        for counts, bucket in self.buckets:
            bucket.take(requests if counts == "requests" else tokens)

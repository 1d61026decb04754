"""Which rate limits has a tenant, and how much of each is left?

A rate limit follows the generic cell rate algorithm (ITU-T I.371, annex A): one number, the theoretical
arrival time, which is when the limit will be full again. A period's worth may be taken at once, and it
comes back continuously.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.model import Quota, Quotas, Tenant, Verdict

SLOT_WAIT_S = 1.0  # nobody knows when a slot will be free


class Rate(NamedTuple):
    """A kind of limit. Stores keep one number for each of RATES, in this order."""

    field: str  # of Tenant
    counts: str  # "requests" or "tokens"
    period_s: float


RATES = (
    Rate("requests_per_minute", "requests", 60.0),
    Rate("tokens_per_minute", "tokens", 60.0),
    Rate("requests_per_day", "requests", 86400.0),
    Rate("tokens_per_day", "tokens", 86400.0),
)

Limits = tuple[int | None, int | None, int | None, int | None]  # one of each of RATES


def limits_of(tenant: Tenant) -> Limits:
    return (
        tenant.requests_per_minute,
        tenant.tokens_per_minute,
        tenant.requests_per_day,
        tenant.tokens_per_day,
    )


def is_limited(tenant: Tenant) -> bool:
    return tenant.max_concurrency is not None or limits_of(tenant) != (None, None, None, None)


def quotas(limits: Limits, resets_s: Sequence[float]) -> Quotas:
    """What the headers tell: of a minute's and a day's limit the one of which less is left.

    resets_s: when each of RATES will be full again, in seconds from now.
    """
    requests, tokens, daily_requests, daily_tokens = limits
    of_requests = None if requests is None else _quota(requests, 60.0, resets_s[0])
    of_tokens = None if tokens is None else _quota(tokens, 60.0, resets_s[1])
    if daily_requests is not None:
        of_requests = _tighter(of_requests, _quota(daily_requests, 86400.0, resets_s[2]))
    if daily_tokens is not None:
        of_tokens = _tighter(of_tokens, _quota(daily_tokens, 86400.0, resets_s[3]))
    return Quotas(of_requests, of_tokens)


def under(limit: int | None, was: int | None, left_s: float, period_s: float) -> float:
    """When a limit that has changed will be full again, in seconds.

    The amount that was used stays used, and a lower limit is at most used up by that.
    """
    if limit == was or limit is None or was is None:
        return left_s
    return min(left_s * was / limit, max(left_s, period_s))


def refusal(limits: Limits, rate: int, wait_s: float, left: Quotas) -> Verdict:
    """The limit at index `rate` of RATES stands against it for `wait_s` more."""
    of = RATES[rate]
    return Verdict(left, of.counts, wait_s, limits[rate] or 0, of.period_s)


def no_slot(left: Quotas) -> Verdict:
    """As many requests run as may at once."""
    return Verdict(left, "concurrency", SLOT_WAIT_S)


def _quota(limit: int, period_s: float, reset_s: float) -> Quota:
    if reset_s <= 0:
        return Quota(limit, limit, 0.0)
    remaining = int((period_s - reset_s) * limit / period_s + 1e-6)
    return Quota(limit, remaining if remaining > 0 else 0, reset_s)


def _tighter(minute: Quota | None, day: Quota) -> Quota:
    return day if minute is None or day.remaining < minute.remaining else minute

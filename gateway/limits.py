"""May this tenant do that now? Take requests, tokens and a slot before the work; settle by what was used."""

import secrets
from collections.abc import Awaitable
from types import TracebackType
from typing import Protocol

from gateway.errors import RateLimited
from gateway.model import Job, Quotas, Tenant, Usage, Verdict

MINUTE_S = 60.0
LONGEST_RETRY_AFTER_S = 60.0  # that the header may tell: nobody should wait for more by itself


class LimitStore(Protocol):
    """Where limits are counted. Each method is one atomic step. No two requests have the same `lease`."""

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        """Take one request, `tokens` and a slot, or nothing at all."""
        ...

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        """Give the slot back and charge `used` tokens instead of `reserved`; None refunds the request too.

        A second call for the same lease does nothing.
        """
        ...

    async def look(self, tenant: Tenant) -> Quotas:
        """The limits as they stand; takes nothing."""
        ...


class Reservation:
    """What a request has taken. Leaving it settles, exactly once, whatever happened inside."""

    __slots__ = ("_job", "_lease", "_reserved", "_store", "_used", "quotas")

    def __init__(self, store: LimitStore, lease: str, job: Job) -> None:
        self._store = store
        self._lease = lease
        self._job = job
        self._reserved = _cost(job)
        self._used: int | None = None
        self.quotas: Quotas | None = None

    def charge(self, usage: Usage) -> None:
        """A worker began: these tokens are paid for. The last call counts."""
        self._used = usage.prompt_tokens + usage.completion_tokens

    async def take(self) -> "Reservation":
        tenant = self._job.caller.tenant
        for limit, period in ((tenant.tokens_per_minute, "minute"), (tenant.tokens_per_day, "day")):
            if limit is not None and self._reserved > limit:
                raise _too_large(self._reserved, limit, period)
        verdict = await self._store.take(self._lease, tenant, self._reserved)
        if verdict.refused == "tokens" and not self._job.max_tokens_given:
            self._reserved = _least(self._job, verdict.quotas)
            verdict = await self._store.take(self._lease, tenant, self._reserved)
        if verdict.refused:
            raise _refusal(verdict, self._reserved)
        self.quotas = verdict.quotas
        return self

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.settle(self._lease, self._job.caller.tenant, self._reserved, self._used)


class RateLimiter:
    def __init__(self, store: LimitStore) -> None:
        self.store = store
        self._process = secrets.token_hex(6)  # the caller chooses job.id, so that is no name for a lease
        self._count = 0

    def reserve(self, job: Job) -> Awaitable[Reservation]:
        """A lease: `with await`. Raises RateLimited or StoreUnavailable."""
        self._count += 1
        return Reservation(self.store, f"{self._process}:{self._count}", job).take()

    async def look(self, tenant: Tenant) -> Quotas:
        return await self.store.look(tenant)


def _cost(job: Job) -> int:
    """Tokens to reserve. Only a maximum that the caller named can make a request too large for its limit."""
    tenant = job.caller.tenant
    cost = job.total_tokens
    if not job.max_tokens_given:
        for limit in (tenant.tokens_per_minute, tenant.tokens_per_day):
            if limit is not None and cost > limit:
                cost = max(job.prompt_tokens, limit)
    return cost


def _least(job: Job, quotas: Quotas) -> int:
    """Tokens to reserve where there are not enough for an answer that may become as long as it likes.

    All that is left, for most answers are short: a budget of the size of one long answer is good for many.
    """
    left = quotas.tokens.remaining if quotas.tokens else 0
    return max(left, job.prompt_tokens + 1)


def _too_large(tokens: int, limit: int, period: str) -> RateLimited:
    message = (
        f"This request needs up to {tokens} tokens, more than the limit of {limit} a {period} "
        "can ever grant. Shorten the prompt or lower max_tokens."
    )
    return RateLimited("tokens", message, should_retry=False)


def _refusal(verdict: Verdict, tokens: int) -> RateLimited:
    kind, retry_after_s = verdict.refused, verdict.retry_after_s
    if kind == "concurrency":
        message = "Too many requests at once for this key's tenant. Wait for one to finish."
        error = RateLimited(kind, message, retry_after_s=retry_after_s)
    else:
        period = "minute" if verdict.period_s <= MINUTE_S else "day"
        asked = f", requested {tokens}" if kind == "tokens" else ""
        message = (
            f"Rate limit reached for {kind} per {period}: limit {verdict.limit}{asked}. "
            f"Try again in {_words(retry_after_s)}."
        )
        error = RateLimited(
            kind,
            message,
            retry_after_s=retry_after_s,
            should_retry=False if retry_after_s > LONGEST_RETRY_AFTER_S else None,
        )
        if kind == "tokens" and period == "day":
            error.type = error.code = "insufficient_quota"  # as OpenAI tells of a budget that is used up
    error.quotas = verdict.quotas
    return error


def _words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

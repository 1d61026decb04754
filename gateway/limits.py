"""May this tenant do that now? Take requests, tokens and a slot before the work; settle by what was used."""

from types import TracebackType
from typing import Protocol

from gateway.errors import RateLimited
from gateway.model import Job, Quotas, Tenant, Usage, Verdict


class LimitStore(Protocol):
    """Where limits are counted. Each method is one atomic step."""

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

    async def __aenter__(self) -> "Reservation":
        verdict = await self._store.take(self._lease, self._job.caller.tenant, self._reserved)
        if verdict.refused:
            raise _refusal(verdict, self._reserved)
        self.quotas = verdict.quotas
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.settle(self._lease, self._job.caller.tenant, self._reserved, self._used)


class RateLimiter:
    def __init__(self, store: LimitStore) -> None:
        self.store = store
        self._count = 0

    def reserve(self, job: Job) -> Reservation:
        """A lease: `async with`. Entering it may raise RateLimited."""
        self._count += 1  # the caller chooses job.id, so it alone is no name for a lease
        return Reservation(self.store, f"{job.id}:{self._count}", job)

    async def look(self, tenant: Tenant) -> Quotas:
        return await self.store.look(tenant)


def _cost(job: Job) -> int:
    """Tokens to reserve. Only a maximum that the caller named can make a request too large for its limit."""
    limit = job.caller.tenant.tokens_per_minute
    if limit is None or job.max_tokens_given:
        return job.total_tokens
    return max(job.prompt_tokens, min(job.total_tokens, limit))


def _refusal(verdict: Verdict, tokens: int) -> RateLimited:
    kind, retry_after_s = verdict.refused, verdict.retry_after_s
    quota = verdict.quotas.tokens if kind == "tokens" else verdict.quotas.requests
    should_retry = None
    if kind == "concurrency" or quota is None:
        message = "Too many requests at once for this key's tenant. Wait for one to finish."
    elif kind == "tokens" and tokens > quota.limit:
        should_retry = False
        message = (
            f"This request needs up to {tokens} tokens, more than the limit of {quota.limit} a minute "
            "can ever grant. Shorten the prompt or lower max_tokens."
        )
    else:
        asked = f", requested {tokens}" if kind == "tokens" else ""
        message = (
            f"Rate limit reached for {kind} per minute: limit {quota.limit}, "
            f"remaining {quota.remaining}{asked}. Try again in {retry_after_s:.1f} s."
        )
    error = RateLimited(kind, message, retry_after_s=retry_after_s, should_retry=should_retry)
    error.quotas = verdict.quotas
    return error

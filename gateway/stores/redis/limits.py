"""Limits counted in Redis, for all processes and replicas together."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from gateway.model import Quotas, Tenant, Verdict
from gateway.stores import rates
from gateway.stores.redis.batches import BEAT, FORCE, LOOK, RENEW, SETTLE, TAKE, Answer, Batches, Entry

NO_SLOT = 5  # limits.lua's word for it
RENEWED_AT_ONCE = 500  # leases of one step
NO_LIMITS = Verdict(Quotas())


class _Account:
    """A tenant as this process knows it."""

    __slots__ = ("entry", "is_limited", "known_at", "leases", "limits", "resets_us", "tenant")

    def __init__(self, tenant: Tenant, prefix: str) -> None:
        self.leases: set[str] = set()
        self.known_at, self.resets_us = 0.0, [0] * len(rates.RATES)  # of the last answer
        self.adopt(tenant, prefix)

    def adopt(self, tenant: Tenant, prefix: str) -> None:
        """From now on its limits are these."""
        self.tenant = tenant
        self.limits = rates.limits_of(tenant)
        self.is_limited = rates.is_limited(tenant)
        tag = f"{prefix}:{{{tenant.id}}}"  # the braces keep all keys of a tenant in one slot of a cluster
        limits = [limit or 0 for limit in (*self.limits, tenant.max_concurrency)]
        self.entry = Entry((f"{tag}:limits", f"{tag}:leases"), limits)

    def quotas(self, answer: Answer) -> Quotas:
        self.known_at = time.monotonic()
        self.resets_us = resets_us = answer[2:]
        return rates.quotas(self.limits, [reset_us / 1e6 for reset_us in resets_us])

    def resets_s(self) -> list[float]:
        """When each of RATES will be full again, in seconds, as far as is known here."""
        since_s = time.monotonic() - self.known_at
        return [max(0.0, reset_us / 1e6 - since_s) for reset_us in self.resets_us]

    def spend(self, amounts: Sequence[float]) -> None:
        """What was charged, although no answer has told of it yet."""
        resets_s = self.resets_s()
        for index, (rate, limit) in enumerate(zip(rates.RATES, self.limits, strict=True)):
            if limit is not None:
                resets_s[index] += amounts[index] * rate.period_s / limit
        self.known_at = time.monotonic()
        self.resets_us = [int(reset_s * 1e6) for reset_s in resets_s]


class RedisLimits:
    """A LimitStore; `async with`. Its methods raise StoreUnavailable while Redis is away.

    on_up, on_down: are called when Redis answers (again), and with the reason when it does not any more.
    A lease lapses after lease_ttl_s unless renewed, which is done three times in that time.
    """

    def __init__(self, batches: Batches, prefix: str, lease_ttl_s: float) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda reason: None
        self._batches = batches
        self._prefix = prefix
        self._renew_every_s = lease_ttl_s / 3
        self._accounts: dict[str, _Account] = {}
        self._held: dict[str, _Account] = {}
        self._restored: set[str] = set()  # leases that Redis had lost: what they took is not known there
        batches.on_up = self._came_up
        batches.on_down = lambda reason: self.on_down(reason)

    @property
    def is_up(self) -> bool:
        return self._batches.is_up

    @property
    def processes(self) -> int:
        """That share the limits, as last counted."""
        return self._batches.processes

    async def __aenter__(self) -> "RedisLimits":
        await self._batches.__aenter__()
        self._heart = asyncio.create_task(self._beat(), name="renewing leases")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._heart.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._heart
        await self._batches.__aexit__()

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        account = self._account(tenant)
        if not account.is_limited:
            return NO_LIMITS
        future = self._batches.ask(TAKE, account.entry, (lease, tokens))
        try:
            answer = await future
        except asyncio.CancelledError:
            # Batches undoes what is granted to a future that was cancelled. This one was granted before.
            if future.done() and not future.cancelled() and not future.exception() and not future.result()[0]:
                self._batches.tell(SETTLE, account.entry, (lease, -1, -tokens))
            raise
        left, refused = account.quotas(answer), answer[0]
        if refused == 0:
            self._hold(lease, account)
            return Verdict(left)
        if refused == NO_SLOT:
            return rates.no_slot(left)
        return rates.refusal(account.limits, refused - 1, answer[1] / 1e6, left)

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        account = self._held.pop(lease, None)
        if account is None:
            return
        account.leases.remove(lease)
        if lease in self._restored:
            self._restored.remove(lease)
            change = (0, 0)
        elif used is None:
            change = (-1, -reserved)
        else:
            change = (0, used - reserved)
        self._batches.tell(SETTLE, account.entry, (lease, *change))

    async def look(self, tenant: Tenant) -> Quotas:
        account = self._account(tenant)
        if not account.is_limited:
            return NO_LIMITS.quotas
        return account.quotas(await self._batches.ask(LOOK, account.entry, ()))

    def last_known(self, tenant: Tenant) -> tuple[list[float], list[str]]:
        """When each of RATES will be full again, in seconds, by the last answer; the leases held here."""
        account = self._account(tenant)
        return account.resets_s(), list(account.leases)

    def impose(self, lease: str, tenant: Tenant, amounts: Sequence[float]) -> None:
        """Charge what was granted elsewhere while Redis was away, whether or not it fits.

        amounts: for each of RATES. With a lease, it is held from now on; "" for what has ended.
        """
        account = self._account(tenant)
        self._batches.tell(FORCE, account.entry, (lease, list(amounts)))
        account.spend(amounts)
        if lease:
            self._hold(lease, account)

    def _hold(self, lease: str, account: _Account) -> None:
        self._held[lease] = account
        account.leases.add(lease)

    def _account(self, tenant: Tenant) -> _Account:
        account = self._accounts.get(tenant.id)
        if account is None:
            account = self._accounts[tenant.id] = _Account(tenant, self._prefix)
        elif account.tenant is not tenant:  # looked up anew; seldom another
            if account.tenant != tenant:
                account.adopt(tenant, self._prefix)
            account.tenant = tenant
        return account

    def _came_up(self) -> None:
        self._renew()
        self.on_up()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._renew_every_s)
            if self.is_up:
                self._renew()

    def _renew(self) -> None:
        for account in self._accounts.values():
            leases = list(account.leases)
            for first in range(0, len(leases), RENEWED_AT_ONCE):
                some = leases[first : first + RENEWED_AT_ONCE]
                self._batches.ask(RENEW, account.entry, (some,)).add_done_callback(self._renewed)
        self._batches.tell(BEAT, None, (1,))

    def _renewed(self, future: asyncio.Future[Answer]) -> None:
        """Leases that Redis had forgotten, or let lapse, are held again; their reservations are not."""
        if not future.cancelled() and not future.exception():
            self._restored.update(lease for lease in future.result() if lease in self._held)

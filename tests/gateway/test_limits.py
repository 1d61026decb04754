"""Is what a request takes settled once, at its true price, and is a refusal told so that a caller can act?"""

from typing import Any

import pytest

from gateway.errors import RateLimited
from gateway.limits import LimitStore, RateLimiter, Reservation
from gateway.model import Quota, Quotas, Tenant, Usage, Verdict
from gateway.stores.memory import MemoryStore
from tests.gateway.test_model import Clock, job

GRANTED = Verdict(Quotas(Quota(60, 59, 1.0)))


class ScriptedStore:
    """Gives one verdict and keeps what it was told."""

    def __init__(self, verdict: Verdict = GRANTED) -> None:
        self.verdict = verdict
        self.taken: list[tuple[str, str, int]] = []
        self.settled: list[tuple[str, str, int, int | None]] = []

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        self.taken.append((lease, tenant.id, tokens))
        return self.verdict

    def settle(self, lease: str, tenant: Tenant, reserved: int, used: int | None) -> None:
        self.settled.append((lease, tenant.id, reserved, used))

    async def look(self, tenant: Tenant) -> Quotas:
        return self.verdict.quotas


def limiter(store: LimitStore) -> RateLimiter:
    return RateLimiter(store)


async def taken_for(tenant: Tenant, **fields: Any) -> int:
    store = ScriptedStore()
    async with limiter(store).reserve(job(tenant, **fields)):
        [(_, _, tokens)] = store.taken
    return tokens


async def refused(verdict: Verdict, **fields: Any) -> RateLimited:
    store = ScriptedStore(verdict)
    with pytest.raises(RateLimited) as caught:
        async with limiter(store).reserve(job(**fields)):
            raise AssertionError("the room was entered")
    assert store.settled == []
    return caught.value


async def test_a_request_reserves_its_prompt_and_its_longest_output() -> None:
    assert await taken_for(Tenant("acme"), prompt_tokens=10, max_output_tokens=20) == 30


@pytest.mark.parametrize(
    ("limit", "given", "prompt", "output", "reserved"),
    [
        (100, False, 10, 20, 30),
        (100, False, 10, 5000, 100),  # a maximum that nobody named makes nothing impossible
        (100, False, 150, 5000, 150),  # but a prompt can
        (100, True, 10, 5000, 5010),
        (None, False, 10, 5000, 5010),
    ],
)
async def test_only_what_the_caller_asked_for_can_exceed_the_limit(
    limit: int | None, given: bool, prompt: int, output: int, reserved: int
) -> None:
    tenant = Tenant("acme", tokens_per_minute=limit)
    fields = {"prompt_tokens": prompt, "max_output_tokens": output, "max_tokens_given": given}
    assert await taken_for(tenant, **fields) == reserved


async def test_leaving_settles_with_what_was_charged_last() -> None:
    store = ScriptedStore()
    async with limiter(store).reserve(job()) as reservation:
        assert isinstance(reservation, Reservation)
        assert reservation.quotas == GRANTED.quotas
        reservation.charge(Usage(10, 1))
        reservation.charge(Usage(10, 7, cached_tokens=3))
        assert store.settled == []
    [(lease, _, _)] = store.taken
    assert store.settled == [(lease, "acme", 30, 17)]


async def test_a_request_that_was_not_charged_is_refunded() -> None:
    store = ScriptedStore()
    with pytest.raises(ZeroDivisionError):
        async with limiter(store).reserve(job()):
            raise ZeroDivisionError
    [(_, _, reserved, used)] = store.settled
    assert (reserved, used) == (30, None)


async def test_two_requests_of_one_id_hold_two_leases() -> None:
    store = MemoryStore(Clock())
    made, tenant = limiter(store), Tenant("acme", max_concurrency=2)
    async with made.reserve(job(tenant, id="same")):
        async with made.reserve(job(tenant, id="same")):
            assert store.leases(tenant) == 2
        assert store.leases(tenant) == 1
    assert store.leases(tenant) == 0


async def test_looking_takes_nothing() -> None:
    made, tenant = limiter(MemoryStore(Clock())), Tenant("acme", requests_per_minute=60)
    assert await made.look(tenant) == await made.look(tenant) == Quotas(Quota(60, 60, 0.0))


async def test_a_refusal_by_requests_says_limit_rest_and_wait() -> None:
    quotas = Quotas(Quota(60, 0, 60.0), Quota(1000, 900, 6.0))
    error = await refused(Verdict(quotas, "requests", 1.25))
    assert (error.kind, error.retry_after_s, error.should_retry) == ("requests", 1.25, None)
    assert error.quotas == quotas
    assert error.message == (
        "Rate limit reached for requests per minute: limit 60, remaining 0. Try again in 1.2 s."
    )


async def test_a_refusal_by_tokens_says_how_many_were_asked_for() -> None:
    quotas = Quotas(Quota(60, 59, 1.0), Quota(1000, 20, 58.8))
    error = await refused(Verdict(quotas, "tokens", 0.6))
    assert (error.kind, error.retry_after_s, error.should_retry) == ("tokens", 0.6, None)
    assert error.message == (
        "Rate limit reached for tokens per minute: limit 1000, remaining 20, requested 30. "
        "Try again in 0.6 s."
    )


@pytest.mark.parametrize(("tokens", "should_retry"), [(1000, None), (1001, False)])
async def test_a_request_larger_than_the_limit_hears_that_no_retry_helps(
    tokens: int, should_retry: bool | None
) -> None:
    verdict = Verdict(Quotas(tokens=Quota(1000, 1000, 0.0)), "tokens", 1.0)
    error = await refused(verdict, prompt_tokens=tokens - 20)
    assert error.should_retry is should_retry
    assert ("can ever grant" in error.message) == (should_retry is False)


@pytest.mark.parametrize("quotas", [Quotas(), Quotas(Quota(60, 59, 1.0), Quota(10, 5, 1.0))])
async def test_a_refusal_by_concurrency_says_to_wait_for_another_to_finish(quotas: Quotas) -> None:
    error = await refused(Verdict(quotas, "concurrency", 1.0))
    assert (error.kind, error.retry_after_s, error.should_retry) == ("concurrency", 1.0, None)
    assert error.quotas == quotas
    assert "at once" in error.message

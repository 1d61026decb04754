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
    with await limiter(store).reserve(job(tenant, **fields)):
        [(_, _, tokens)] = store.taken
    return tokens


async def refused(verdict: Verdict, **fields: Any) -> RateLimited:
    store = ScriptedStore(verdict)
    with pytest.raises(RateLimited) as caught, await limiter(store).reserve(job(**fields)):
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
        (100, True, 10, 90, 100),
        (None, False, 10, 5000, 5010),
    ],
)
@pytest.mark.parametrize("name", ["tokens_per_minute", "tokens_per_day"])
async def test_a_maximum_that_nobody_named_makes_no_request_too_large(
    name: str, limit: int | None, given: bool, prompt: int, output: int, reserved: int
) -> None:
    tenant = Tenant("acme", **{name: limit})  # type: ignore[arg-type]
    fields = {"prompt_tokens": prompt, "max_output_tokens": output, "max_tokens_given": given}
    assert await taken_for(tenant, **fields) == reserved


@pytest.mark.parametrize(("name", "period"), [("tokens_per_minute", "minute"), ("tokens_per_day", "day")])
@pytest.mark.parametrize(
    ("given", "prompt", "output"),
    [(True, 10, 91), (False, 101, 1)],  # a prompt alone can be too large
)
async def test_a_request_larger_than_a_limit_hears_without_asking_the_store_that_no_retry_helps(
    name: str, period: str, given: bool, prompt: int, output: int
) -> None:
    tenant, store = Tenant("acme", **{name: 100}), ScriptedStore()  # type: ignore[arg-type]
    request = job(tenant, prompt_tokens=prompt, max_output_tokens=output, max_tokens_given=given)
    message = f"more than the limit of 100 a {period} can ever grant"
    with pytest.raises(RateLimited, match=message) as caught:
        await limiter(store).reserve(request)
    assert (caught.value.kind, caught.value.code) == ("tokens", "rate_limit_exceeded")
    assert caught.value.should_retry is False
    assert store.taken == []
    assert store.settled == []


async def test_leaving_settles_with_what_was_charged_last() -> None:
    store = ScriptedStore()
    with await limiter(store).reserve(job()) as reservation:
        assert isinstance(reservation, Reservation)
        assert reservation.quotas == GRANTED.quotas
        reservation.charge(Usage(10, 1))
        reservation.charge(Usage(10, 7, cached_tokens=3))
        assert store.settled == []
    [(lease, _, _)] = store.taken
    assert store.settled == [(lease, "acme", 30, 17)]


async def test_a_request_that_was_not_charged_is_refunded() -> None:
    store = ScriptedStore()
    with pytest.raises(ZeroDivisionError), await limiter(store).reserve(job()):
        raise ZeroDivisionError
    [(_, _, reserved, used)] = store.settled
    assert (reserved, used) == (30, None)


async def test_two_requests_of_one_id_hold_two_leases() -> None:
    store = MemoryStore(Clock())
    made, tenant = limiter(store), Tenant("acme", max_concurrency=2)
    with await made.reserve(job(tenant, id="same")):
        with await made.reserve(job(tenant, id="same")):
            assert store.leases(tenant) == 2
        assert store.leases(tenant) == 1
    assert store.leases(tenant) == 0


async def test_looking_takes_nothing() -> None:
    made, tenant = limiter(MemoryStore(Clock())), Tenant("acme", requests_per_minute=60)
    assert await made.look(tenant) == await made.look(tenant) == Quotas(Quota(60, 60, 0.0))


async def test_a_refusal_by_requests_says_limit_and_wait() -> None:
    quotas = Quotas(Quota(60, 0, 60.0), Quota(1000, 900, 6.0))
    error = await refused(Verdict(quotas, "requests", 1.25, 60))
    assert (error.kind, error.code) == ("requests", "rate_limit_exceeded")
    assert (error.retry_after_s, error.should_retry) == (1.25, None)
    assert error.quotas == quotas
    assert error.message == "Rate limit reached for requests per minute: limit 60. Try again in 1.2 s."


async def test_a_refusal_by_tokens_says_how_many_were_asked_for() -> None:
    error = await refused(Verdict(Quotas(), "tokens", 0.6, 1000))
    assert (error.kind, error.retry_after_s, error.should_retry) == ("tokens", 0.6, None)
    assert error.message == (
        "Rate limit reached for tokens per minute: limit 1000, requested 30. Try again in 0.6 s."
    )


async def test_a_daily_budget_that_is_used_up_is_told_as_openai_does() -> None:
    error = await refused(Verdict(Quotas(), "tokens", 7200.0, 1000, 86400.0))
    assert (error.kind, error.type, error.code) == ("tokens", "insufficient_quota", "insufficient_quota")
    assert error.should_retry is False
    assert error.message == (
        "Rate limit reached for tokens per day: limit 1000, requested 30. Try again in 120 min."
    )


async def test_requests_of_a_day_are_a_rate_limit_like_others() -> None:
    error = await refused(Verdict(Quotas(), "requests", 61.0, 1000, 86400.0))
    assert (error.type, error.code) == ("requests", "rate_limit_exceeded")
    assert "requests per day" in error.message


@pytest.mark.parametrize(("wait_s", "should_retry"), [(60.0, None), (60.1, False)])
async def test_a_wait_longer_than_the_header_can_tell_is_not_to_be_sat_out(
    wait_s: float, should_retry: bool | None
) -> None:
    assert (await refused(Verdict(Quotas(), "requests", wait_s, 10, 86400.0))).should_retry is should_retry


@pytest.mark.parametrize("quotas", [Quotas(), Quotas(Quota(60, 59, 1.0), Quota(10, 5, 1.0))])
async def test_a_refusal_by_concurrency_says_to_wait_for_another_to_finish(quotas: Quotas) -> None:
    error = await refused(Verdict(quotas, "concurrency", 1.0))
    assert (error.kind, error.retry_after_s, error.should_retry) == ("concurrency", 1.0, None)
    assert error.quotas == quotas
    assert "at once" in error.message


# A request that names no maximum


class Nearly(ScriptedStore):
    """Has so many tokens left of a hundred."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def take(self, lease: str, tenant: Tenant, tokens: int) -> Verdict:
        self.taken.append((lease, tenant.id, tokens))
        quotas = Quotas(tokens=Quota(100, self.left, 1.0))
        return Verdict(quotas, "tokens", 3.0, 100) if tokens > self.left else Verdict(quotas)


SMALL = Tenant("acme", tokens_per_minute=100)
OPEN: dict[str, Any] = {"prompt_tokens": 10, "max_output_tokens": 50, "max_tokens_given": False}


async def test_takes_what_is_left_where_that_is_less_than_it_may_need() -> None:
    store = Nearly(left=30)
    with await limiter(store).reserve(job(SMALL, **OPEN)) as reservation:
        reservation.charge(Usage(10, 5))
    assert [tokens for _, _, tokens in store.taken] == [60, 30]
    assert [(reserved, used) for *_, reserved, used in store.settled] == [(30, 15)]


@pytest.mark.parametrize("left", [0, 10])
async def test_is_refused_where_not_even_its_prompt_and_a_token_are_left(left: int) -> None:
    store = Nearly(left)
    with pytest.raises(RateLimited) as caught:
        await limiter(store).reserve(job(SMALL, **OPEN))
    assert [tokens for _, _, tokens in store.taken] == [60, 11]
    assert "requested 11" in caught.value.message


async def test_one_that_names_its_maximum_gets_that_or_nothing() -> None:
    store = Nearly(left=30)
    with pytest.raises(RateLimited):
        await limiter(store).reserve(job(SMALL, **(OPEN | {"max_tokens_given": True})))
    assert len(store.taken) == 1


async def test_it_is_refused_for_other_limits_as_ever() -> None:
    store = ScriptedStore(Verdict(Quotas(), "requests", 3.0, 10))
    with pytest.raises(RateLimited):
        await limiter(store).reserve(job(SMALL, **OPEN))
    assert len(store.taken) == 1


async def test_where_the_store_does_not_tell_what_is_left_the_prompt_and_a_token_are_asked_for() -> None:
    store = ScriptedStore(Verdict(Quotas(), "tokens", 3.0, 100))
    with pytest.raises(RateLimited):
        await limiter(store).reserve(job(SMALL, **OPEN))
    assert [tokens for _, _, tokens in store.taken] == [60, 11]

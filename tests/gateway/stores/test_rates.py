"""What do the headers tell of a tenant with several limits?"""

import pytest

from gateway.model import Quota, Quotas, Tenant, Verdict
from gateway.stores.rates import RATES, is_limited, limits_of, no_slot, quotas, refusal

ALL = Tenant("acme", frozenset("*"), 1, 2, 3, 4)


def test_every_rate_is_a_limit_of_tenants() -> None:
    assert limits_of(ALL) == tuple(getattr(ALL, rate.field) for rate in RATES) == (1, 2, 3, 4)


@pytest.mark.parametrize("name", [*(rate.field for rate in RATES), "max_concurrency"])
def test_one_limit_makes_a_tenant_limited(name: str) -> None:
    assert is_limited(Tenant("acme", **{name: 5}))  # type: ignore[arg-type]
    assert not is_limited(Tenant("acme"))


@pytest.mark.parametrize(
    ("resets_s", "requests"),
    [
        ((0, 0, 0, 0), Quota(60, 60, 0.0)),
        ((1, 0, 43200, 0), Quota(60, 59, 1)),
        ((0, 0, 86300, 0), Quota(1440, 1, 86300)),  # of the day less is left
        ((60, 0, 86300, 0), Quota(60, 0, 60)),
        ((90, 0, 0, 0), Quota(60, 0, 90)),  # a debt
    ],
)
def test_of_a_minute_and_a_day_the_one_is_told_of_which_less_is_left(
    resets_s: tuple[float, ...], requests: Quota
) -> None:
    assert quotas((60, None, 1440, None), resets_s) == Quotas(requests)


def test_a_limit_of_a_day_alone_is_told() -> None:
    assert quotas((None, None, None, 86400), (0, 0, 0, 1.5)) == Quotas(None, Quota(86400, 86398, 1.5))


def test_a_refusal_names_the_limit_and_its_period() -> None:
    left = Quotas()
    assert refusal((1, 2, 3, 4), 3, 7.5, left) == Verdict(left, "tokens", 7.5, 4, 86400.0)
    assert refusal((1, 2, 3, 4), 0, 7.5, left) == Verdict(left, "requests", 7.5, 1, 60.0)
    assert no_slot(left).refused == "concurrency"

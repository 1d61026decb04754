"""Does the checker see a limit that was exceeded, and only that?"""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from benchmarks.chaos.evidence import Span
from benchmarks.chaos.quotas import (
    Grant,
    over_rate,
    over_slots,
    requests_a_minute,
    share,
    slots,
    tokens_a_minute,
)
from tests.benchmarks.chaos.told import WISH, call, found, line, mishap, visit

LIMIT = 60


def grants(*times: float, amount: int = 1) -> list[Grant]:
    return [Grant(at, amount, f"c{number}") for number, at in zip(count(), times, strict=False)]


def test_a_minute_s_worth_at_once_is_within_the_limit_and_two_more_are_not() -> None:
    assert list(over_rate(grants(*[100.0] * 61), LIMIT, [])) == []  # half of one may have come back before
    [text] = over_rate(grants(*[100.0] * 62), LIMIT, [])
    assert text.startswith("62 of 60 a minute, 62 at most")


def test_what_comes_back_may_be_granted_again_however_long_it_goes_on() -> None:
    steady = [100.0] * 60 + [100.0 + second for second in range(1, 600)]
    assert list(over_rate(grants(*steady), LIMIT, [])) == []
    assert list(over_rate(grants(*sorted([*steady, 400.0, 401.0, 402.0])), LIMIT, [])) != []


def test_tokens_are_counted_by_their_amount() -> None:
    assert list(over_rate(grants(100.0, 100.0, amount=30), LIMIT, [])) == []
    assert len(list(over_rate(grants(100.0, 100.0, amount=32), LIMIT, []))) == 1


@pytest.mark.parametrize(("outage", "is_over"), [(Span(99, 101), False), (Span(50, 60), True)])
def test_processes_by_themselves_grant_their_shares_once_more(outage: Span, *, is_over: bool) -> None:
    many = grants(*[100.0] * (LIMIT + 4 * share(LIMIT)))
    assert bool(list(over_rate(many, LIMIT, [outage]))) == is_over
    assert list(over_rate(grants(*[100.0] * 120), LIMIT, [outage]))


def test_a_small_limit_still_has_a_share() -> None:
    assert (share(1), share(60)) == (1, 12)


def test_more_at_once_than_the_limit_is_seen() -> None:
    stays = [Span(0.0, 2.0), Span(1.0, 3.0), Span(2.5, 4.0)]
    assert list(over_slots(stays, 2, [])) == []
    [text] = over_slots([*stays, Span(1.5, 1.7)], 2, [])
    assert text == "3 at once at 1.500, where 2 may be"


def test_what_began_in_an_outage_counts_until_it_ends() -> None:
    stays = [Span(0.0, 9.0), Span(1.0, 9.0), Span(5.0, 6.0)]
    assert list(over_slots(stays, 1, [])) != []
    assert list(over_slots(stays, 1, [Span(0.5, 1.5)])) == []  # one, and three more by processes themselves
    assert list(over_slots([*stays, Span(5.1, 6.0), Span(5.2, 6.0)], 1, [Span(0.5, 1.5)])) != []


def test_limits_of_tenants_are_read_from_the_log() -> None:
    many = [line(id=f"c{number}", tenant="by-requests", charged=1) for number in range(130)]
    assert len(list(requests_a_minute(found(lines=many)))) == 130 - 122
    assert list(requests_a_minute(found(lines=[replace(each, charged=None) for each in many]))) == []
    assert list(requests_a_minute(found(lines=[replace(each, tenant="open") for each in many]))) == []
    tokens = [line(id=f"c{number}", tenant="by-tokens", charged=700) for number in range(9)]
    assert len(list(tokens_a_minute(found(lines=tokens)))) == 1
    away = [mishap("redis frozen", "redis", 9.0, 10.0)]
    assert list(tokens_a_minute(found(lines=tokens, mishaps=away))) == []


def test_slots_are_counted_at_the_workers_for_as_long_as_anybody_waits() -> None:
    wishes = [replace(WISH, id=f"c{number}", tenant="by-slots") for number in range(7)]
    calls = [call(wish=wish, attempts=[wish.id]) for wish in wishes]
    visits = [visit(request_id=wish.id) for wish in wishes]
    everything: dict[str, Any] = {"calls": calls, "visits": visits, "lines": []}
    assert len(list(slots(found(**everything)))) == 1
    gone_before = [*calls[:-1], replace(calls[-1], ended_at=10.0)]
    assert list(slots(found(**{**everything, "calls": gone_before}))) == []
    told_before = [line(id="c6", ended_at=10.05)]
    assert list(slots(found(**{**everything, "lines": told_before}))) == []

"""Is usage told for the days that were asked for, and summed as was asked?"""

from datetime import date
from typing import Any

import pytest

from gateway.usage import UsageRow
from tests.gateway.admin.desk import Desk

ROWS = (
    UsageRow("2026-11-29", "acme", "acme-1", "small", "ok", 3, 30, 10, 15),
    UsageRow("2026-11-30", "acme", "acme-1", "small", "ok", 2, 20, 0, 10),
    UsageRow("2026-11-30", "acme", "acme-2", "small", "client_gone", 1, 10, 5, 1),
)
TODAY = date(2026, 11, 30)


def desk_with_rows() -> Desk:
    desk = Desk()
    desk.usage.rows = ROWS
    return desk


async def lines(desk: Desk, query: str = "") -> list[dict[str, Any]]:
    return list((await desk.ask("GET", f"/admin/usage{query}")).json()["data"])


async def test_every_row_is_told_with_all_that_it_has() -> None:
    seen = await desk_with_rows().ask("GET", "/admin/usage")
    answer = seen.json()
    assert (seen.status, answer["object"], len(answer["data"])) == (200, "list", 3)
    assert answer["data"][0] == {
        "day": "2026-11-29",
        "tenant": "acme",
        "key": "acme-1",
        "model": "small",
        "outcome": "ok",
        "requests": 3,
        "prompt_tokens": 30,
        "cached_tokens": 10,
        "completion_tokens": 15,
    }
    assert answer["total"] == {
        "requests": 6,
        "prompt_tokens": 60,
        "cached_tokens": 15,
        "completion_tokens": 26,
    }


async def test_rows_are_summed_over_what_was_not_asked_for() -> None:
    desk = desk_with_rows()
    by_day = await lines(desk, "?by=day")
    assert [(of["day"], of["tenant"], of["requests"]) for of in by_day] == [
        ("2026-11-29", None, 3),
        ("2026-11-30", None, 3),
    ]
    by_key = await lines(desk, "?by=tenant,key")
    assert [(of["tenant"], of["key"], of["prompt_tokens"]) for of in by_key] == [
        ("acme", "acme-1", 50),
        ("acme", "acme-2", 10),
    ]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", (date(2026, 11, 24), TODAY, None)),
        ("?from=2026-11-29", (date(2026, 11, 29), TODAY, None)),
        ("?to=2026-11-10", (date(2026, 11, 4), date(2026, 11, 10), None)),
        ("?from=2026-11-30&to=2026-11-30&tenant=acme", (TODAY, TODAY, "acme")),
        ("?to=1000-01-01", (date(999, 12, 26), date(1000, 1, 1), None)),
    ],
)
async def test_days_are_utc_and_a_week_unless_said(query: str, asked: tuple[date, date, str | None]) -> None:
    desk = Desk()
    assert await lines(desk, query) == []
    assert desk.usage.asked == [asked]


@pytest.mark.parametrize(
    ("query", "param", "text"),
    [
        ("?from=yesterday", "from", 'query.from = "yesterday": must be a day, as 2026-11-30'),
        ("?to=2026-11-31", "to", "must be a day, as 2026-11-30"),
        ("?to=20261130", "to", "must be a day, as 2026-11-30"),
        ("?to=2026-1-1", "to", "must be a day, as 2026-11-30"),
        ("?to=", "to", "must be a day, as 2026-11-30"),
        ("?from=2026-11-30&to=2026-11-29", "from", "query.from is after query.to"),
        ("?by=hour", "by", 'query.by = "hour": must be some of day, tenant, key, model, outcome'),
        ("?by=", "by", "must be some of day"),
        ("?by=day,day", "by", "each once"),
        ("?tenant=", "tenant", "query.tenant"),
        ("?since=2026-11-30", "since", "query.since: unknown field"),
    ],
)
async def test_a_question_that_cannot_be_is_refused(query: str, param: str, text: str) -> None:
    desk = Desk()
    seen = await desk.ask("GET", f"/admin/usage{query}")
    assert (seen.status, seen.error["param"]) == (400, param)
    assert text in seen.error["message"]
    assert desk.usage.asked == []


async def test_a_store_that_is_away_is_told_and_why_stays_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    desk.usage.is_away = True
    seen = await desk.ask("GET", "/admin/usage", None, (b"x-request-id", b"mine"))
    assert (seen.status, seen.code, seen.headers["retry-after"]) == (503, "store_unavailable", "1")
    assert b"ConnectionError" not in seen.text
    assert [record.getMessage() for record in caplog.records] == ["request mine: ConnectionError: refused"]

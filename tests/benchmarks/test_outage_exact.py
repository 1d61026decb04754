"""Are calls through several replicas counted and judged as they should be?"""

import json

import pytest

from benchmarks.outage import exact
from benchmarks.outage.caller import Answer
from benchmarks.outage.exact import BY_REQUESTS, BY_TOKENS, Plan
from benchmarks.targets import Row

PLAN = Plan()


def answers(granted: int, refused: int, took_s: float = 1.0, odd: int = 0) -> list[Answer]:
    statuses = [200] * granted + [429] * refused + [503] * odd
    return [Answer(10.0, 10.0 + took_s, status, {}, is_whole=True) for status in statuses]


def missed(found: list[Row]) -> list[str]:
    return [row.name.partition(": ")[2] for row in found if row.met is False]


def line(tenant: str = BY_TOKENS, status: int = 200, estimated: int = 10, charged: int = 107) -> str:
    told = {
        "tenant": tenant,
        "status": status,
        "estimated_prompt_tokens": estimated,
        "charged_tokens": charged,
    }
    return json.dumps(told)


def test_exactly_as_many_as_the_limit_says_meet_every_target() -> None:
    found = exact.of_requests(PLAN, answers(20, 180), reached=20)
    assert missed(found) == []
    assert [(row.name, row.value, row.target) for row in found] == [
        ("200 calls at once, 20 a minute: at the worker", 20, "= 20"),
        ("200 calls at once, 20 a minute: answered 200", 20, "= 20"),
        ("200 calls at once, 20 a minute: neither 200 nor 429", 0, "≤ 0"),
        ("200 calls at once, 20 a minute: time for all", 1.0, ""),
    ]


@pytest.mark.parametrize(
    ("given", "reached", "rows"),
    [
        (answers(19, 181), 19, ["at the worker"]),
        (answers(21, 179), 21, ["at the worker"]),
        (answers(21, 179, took_s=3.0), 21, []),  # in that time one more may go
        (answers(22, 178, took_s=3.0), 22, ["at the worker"]),
        (answers(19, 181), 20, ["answered 200"]),
        (answers(20, 179, odd=1), 20, ["neither 200 nor 429"]),
    ],
)
def test_each_miss_of_requests_is_seen(given: list[Answer], reached: int, rows: list[str]) -> None:
    assert missed(exact.of_requests(PLAN, given, reached)) == rows


def test_tokens_are_summed_over_the_logs_of_all_replicas() -> None:
    logs = [
        "\n".join(["t INFO serving", *[line()] * 5, line(status=429), line(tenant=BY_REQUESTS)]),
        "\n".join([line()] * 4),
    ]
    found = exact.of_tokens(PLAN, answers(9, 11), logs)
    assert missed(found) == []
    assert [(row.name, row.value, row.target) for row in found] == [
        ("20 calls at once, 1000 tokens: granted", 9, "≥ 1"),
        ("20 calls at once, 1000 tokens: tokens granted", 990, "≤ 1000"),
        ("20 calls at once, 1000 tokens: tokens charged", 963, "≤ 1000"),
        ("20 calls at once, 1000 tokens: neither 200 nor 429", 0, "≤ 0"),
    ]


@pytest.mark.parametrize(
    ("given", "log", "rows"),
    [
        (answers(0, 20), "", ["granted"]),
        (answers(9, 11), "\n".join([line(estimated=12)] * 9), ["tokens granted"]),
        (answers(9, 11), "\n".join([line(charged=112)] * 9), ["tokens charged"]),
        (answers(9, 10, odd=1), "\n".join([line()] * 9), ["neither 200 nor 429"]),
    ],
)
def test_each_miss_of_tokens_is_seen(given: list[Answer], log: str, rows: list[str]) -> None:
    assert missed(exact.of_tokens(PLAN, given, [log])) == rows

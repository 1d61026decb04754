"""Are the right things put beside each other, and held to the right targets?"""

import pytest

from benchmarks.limits import measurements
from benchmarks.limits.measurements import Plan, measure, rows
from benchmarks.limits.server import running_redis

PLAN = Plan(callers=16, tenants=2, per_s=500, seconds=0.1, rounds=2)


async def test_every_round_has_all_figures_of_a_real_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "WARM_UP_S", 0.01)
    with running_redis() as server:
        rounds = await measure(PLAN, server)

    assert len(rounds) == 2
    for each in rounds:
        assert each["saturated_pairs_per_s"] > 0
        assert 1 <= each["saturated_pairs_per_call"] <= 17  # its callers, and a settlement left over
        assert each["saturated_memory_us"] > 0
        added_us = each["saturated_redis_us"] - each["saturated_memory_us"]
        assert each["saturated_added_us"] == pytest.approx(added_us)
        assert 0 < each["busy_p50_ms"] <= each["busy_p99_ms"]
        assert 0 < each["quarter_p50_ms"] <= each["quarter_p99_ms"]
    fastest = max(each["saturated_pairs_per_s"] for each in rounds)
    assert all(each["quarter_per_s"] < fastest for each in rounds)
    assert [row.name for row in rows(PLAN, rounds)][:1] == ["16 callers: pairs"]


def test_the_rows_are_medians_with_the_targets() -> None:
    names = (
        "saturated_pairs_per_s", "saturated_pairs_per_call", "saturated_memory_us", "saturated_redis_us",
        "saturated_added_us", "saturated_server_us", "busy_added_us", "busy_p50_ms", "busy_p99_ms",
        "quarter_per_s", "quarter_p50_ms", "quarter_p99_ms",
    )  # fmt: skip
    rounds = [{name: 100.0 * factor + place for place, name in enumerate(names)} for factor in (3, 1, 2)]

    found = rows(PLAN, rounds)

    assert [(row.name, row.value, row.unit, row.target) for row in found] == [
        ("16 callers: pairs", 200, "/s", "≥ 4000 /s"),
        ("16 callers: pairs that share a call", 201, "", ""),
        ("16 callers: CPU of a pair, in memory", 202, "µs", ""),
        ("16 callers: CPU of a pair, in Redis", 203, "µs", ""),
        ("16 callers: CPU of a pair, added by Redis", 204, "µs", "≤ 40 µs"),
        ("16 callers: CPU of a pair, of the Redis server", 205, "µs", ""),
        ("500/s: CPU of a pair, added by Redis", 206, "µs", "≤ 40 µs"),
        ("500/s: wait for an admission, p50", 207, "ms", ""),
        ("500/s: wait for an admission, p99", 208, "ms", ""),
        ("a quarter, 209/s: wait for an admission, p50", 210, "ms", ""),
        ("a quarter, 209/s: wait for an admission, p99", 211, "ms", "≤ 2 ms"),
    ]


def test_the_duration_counts_every_load() -> None:
    assert Plan(64, 8, 4000, seconds=2, rounds=5).duration_s == 51

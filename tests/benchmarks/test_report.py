"""Is what is shown and kept of a burst true, and in the units it names?"""

from typing import Any

from benchmarks.burst import report
from benchmarks.burst.records import Record
from benchmarks.burst.summary import summarize
from tests.benchmarks.test_client import PLAN


def shown(*records: Record) -> list[tuple[Any, Any]]:
    columns = report.table(PLAN, summarize(records)).columns
    return list(zip(columns[0].cells, columns[1].cells, strict=True))


def test_the_table_gives_times_in_the_units_it_names() -> None:
    rows = shown(
        Record(
            0,
            started_s=0.0,
            ended_s=2.0,
            first_token_s=0.5,
            last_token_s=1.5,
            prompt_tokens=1,
            output_tokens=11,
        )
    )

    assert ("time to first token p50 / p90 / p99", "0.500 / 0.500 / 0.500 s") in rows
    assert ("time per output token p50 / p90 / p99", "100.000 / 100.000 / 100.000 ms") in rows
    assert ("end to end p50 / p90 / p99", "2.000 / 2.000 / 2.000 s") in rows
    assert ("requests", "0.50 /s") in rows
    assert ("output tokens", "5.5 /s") in rows


def test_the_table_mentions_retries_and_missing_usage_only_where_there_were_some() -> None:
    rows = shown(Record(0, 0.0, 1.0, retries=2))
    plain = shown(Record(0, 0.0, 1.0, output_tokens=1))

    assert ("retries by the SDK", "2") in rows
    assert ("answers without usage (tokens not counted)", "1") in rows
    assert not [row for row in plain if "retries" in row[0] or "usage" in row[0]]

"""Are the footprint's figures shown and kept in their units, and held to their targets?"""

from datetime import UTC, datetime

import pytest

from benchmarks.footprint import report
from benchmarks.footprint.report import Row


@pytest.mark.parametrize(
    ("value", "at_most", "met"), [(80.0, 80, True), (80.01, 80, False), (0, 0, True), (1e9, None, None)]
)
def test_a_target_is_met_up_to_its_limit_and_a_row_without_one_judges_nothing(
    value: float, at_most: float | None, met: bool | None
) -> None:
    assert Row("any", value, "MB", at_most).met is met


def test_the_table_shows_value_target_and_verdict() -> None:
    columns = report.table(
        [
            Row("small", 55.68, "MB", at_most=80),
            Row("large", 81.0, "MB", at_most=80),
            Row("context", 3, "requests"),
        ]
    ).columns

    assert [list(column.cells) for column in columns] == [
        ["small", "large", "context"],
        ["55.7 MB", "81 MB", "3 requests"],
        ["≤ 80 MB", "≤ 80 MB", ""],
        ["[green]yes", "[red]no", ""],
    ]


def test_the_document_says_what_was_measured_when_where_and_with_what() -> None:
    started_at = datetime(2026, 11, 30, 12, tzinfo=UTC)

    kept = report.document(
        {"streams": 5}, started_at, [Row("gap", 44.5, "ms", 250), Row("quiet", 20.0, "ms")]
    )

    assert (kept["benchmark"], kept["started_at"]) == ("footprint", "2026-11-30T12:00:00+00:00")
    assert kept["parameters"] == {"streams": 5}
    assert kept["machine"]["cores"] >= 1
    assert {"python", "vllm-gateway", "uvicorn", "openai"} <= kept["versions"].keys()
    assert "commit" in kept
    assert list(kept)[-1] == "rows"  # which is then written one a line
    assert kept["rows"] == [
        {"name": "gap", "value": 44.5, "unit": "ms", "target": 250, "met": True},
        {"name": "quiet", "value": 20.0, "unit": "ms", "target": None, "met": None},
    ]

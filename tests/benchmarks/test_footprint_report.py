"""Is the footprint kept with all that a reader needs?"""

from datetime import UTC, datetime

from benchmarks.footprint import report
from benchmarks.targets import Row


def test_the_document_says_what_was_measured_when_where_and_with_what() -> None:
    started_at = datetime(2026, 11, 30, 12, tzinfo=UTC)

    kept = report.document(
        {"streams": 5}, started_at, [Row("gap", 44.5, "ms", at_most=250), Row("quiet", 20.0, "ms")]
    )

    assert (kept["benchmark"], kept["started_at"]) == ("footprint", "2026-11-30T12:00:00+00:00")
    assert kept["parameters"] == {"streams": 5}
    assert kept["machine"]["cores"] >= 1
    assert {"python", "vllm-gateway", "uvicorn", "openai"} <= kept["versions"].keys()
    assert "commit" in kept
    assert list(kept)[-1] == "rows"  # which is then written one a line
    assert kept["rows"] == [
        {"name": "gap", "value": 44.5, "unit": "ms", "target": "≤ 250 ms", "met": True},
        {"name": "quiet", "value": 20.0, "unit": "ms", "target": "", "met": None},
    ]

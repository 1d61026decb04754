"""Are the costs of limits kept with all that a reader needs?"""

from datetime import UTC, datetime

from benchmarks.limits import report
from benchmarks.targets import Row


def test_the_document_says_what_was_measured_when_where_and_with_what() -> None:
    started_at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    rows = [Row("wait", 1.5, "ms", at_most=2), Row("context", 64.0, "")]

    kept = report.document({"callers": 64}, started_at, "7.0.15", [{"p99_ms": 1.5}], rows)

    assert (kept["benchmark"], kept["started_at"]) == ("limits", "2026-11-30T12:00:00+00:00")
    assert kept["parameters"] == {"callers": 64}
    assert kept["machine"]["cores"] >= 1
    assert {"python", "vllm-gateway", "hiredis", "uvloop"} <= kept["versions"].keys()
    assert kept["versions"]["redis-server"] == "7.0.15"
    assert "commit" in kept
    assert kept["rounds"] == [{"p99_ms": 1.5}]
    assert list(kept)[-1] == "rows"  # which is then written one a line
    assert kept["rows"] == [
        {"name": "wait", "value": 1.5, "unit": "ms", "target": "≤ 2 ms", "met": True},
        {"name": "context", "value": 64.0, "unit": "", "target": "", "met": None},
    ]

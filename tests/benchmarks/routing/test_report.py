"""Are runs kept whole, read back, and shown with their spread and what they are held to?"""

import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import record
from benchmarks.command import CannotStart
from benchmarks.routing import report
from benchmarks.routing.results import Run
from benchmarks.routing.scenarios import OURS, ROUND_ROBIN
from tests.benchmarks.routing.made import run

STARTED = datetime(2026, 11, 30, 12, tzinfo=UTC)


def mixed() -> list[Run]:
    return [
        run("mixed", "0.7", arm, seed, usable=seed != 2, short_ttft_p99_s=wait_s * seed, goodput_rps=30.0)
        for seed in (1, 2, 3)
        for arm, wait_s in ((OURS, 0.1), (ROUND_ROBIN, 0.9))
    ]


def shown(runs: list[Run]) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    for table in report.tables(runs):
        console.print(table)
    return console.export_text()


def test_everything_is_kept_and_the_runs_come_back(tmp_path: Path) -> None:
    runs = [*mixed(), run("conversation", "conversation", "sglang-router:cache_aware")]

    record.write(tmp_path / "it.json", report.document({"seeds": [1, 2, 3]}, STARTED, 52.5, runs))

    kept = json.loads((tmp_path / "it.json").read_text())
    assert (kept["benchmark"], kept["capacity_rps"], kept["parameters"]) == (
        "routing",
        52.5,
        {"seeds": [1, 2, 3]},
    )
    assert kept["versions"]["sglang-router"] == "0.3.2"
    assert "vllm-router" not in kept["versions"]
    assert {"machine", "commit", "started_at"} < set(kept)
    assert kept["rows"][0]["scenario"] == "mixed"
    assert kept["rows"][0]["met"]
    assert report.read(tmp_path / "it.json") == runs


def test_what_could_not_be_compared_is_kept_without_a_value() -> None:
    known = run("mixed", "0.7", OURS, 1, short_ttft_p99_s=0.1)
    unknown = run("mixed", "0.7", ROUND_ROBIN, 1, short_ttft_p99_s=None)

    rows = report.document({}, STARTED, None, [known, unknown])["rows"]

    assert (rows[0]["value"], rows[0]["met"]) == (None, False)
    assert "NaN" not in json.dumps(rows)


@pytest.mark.parametrize("text", ["", "{}", '{"runs": [{"arm": "a"}]}', '{"runs": 3}'])
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(CannotStart, match="no results of this benchmark"):
        report.read(tmp_path / "it.json")


def test_scenarios_come_in_their_own_order() -> None:
    runs = [run("kill", "x", OURS), *mixed()]
    assert list(report.by_scenario(runs)) == ["mixed", "kill"]


def test_a_run_in_which_the_machine_was_late_is_a_target_missed() -> None:
    [(name, rows)] = report.judged(mixed())
    assert name == "mixed"
    assert (rows[-1].value, rows[-1].met) == (2, False)


def test_a_table_has_medians_with_lowest_and_highest_and_what_was_late() -> None:
    text = shown(mixed())
    lines = text.splitlines()
    [ours] = [line for line in lines if OURS in line and "0.7" in line]
    assert [cell.strip() for cell in ours.split("│")[1:-1]] == ["0.7", OURS, "200", "30.0", "1"]
    assert "100-300" in lines[lines.index(ours) + 1]
    assert "≤ 0.17" in text


def test_a_figure_that_nobody_has_or_that_is_nothing_gets_no_column() -> None:
    runs = [
        run("mixed", "0.7", OURS, short_ttft_p99_s=0.1, shed_share=0.0),
        run("mixed", "0.7", ROUND_ROBIN, short_ttft_p99_s=None, shed_share=0.0),
    ]
    text = shown(runs)
    assert "shed" not in text
    assert "Jain" not in text
    [line] = [line for line in text.splitlines() if ROUND_ROBIN in line and "0.7" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["0.7", ROUND_ROBIN, "", ""]


def test_a_ratio_that_is_not_known_is_no_number() -> None:
    assert math.isnan(
        report.judged([run("mixed", "0.7", OURS), run("mixed", "0.7", ROUND_ROBIN)])[0][1][0].value
    )

"""Are decisions measured and held to their targets?"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.decisions import __main__ as command
from benchmarks.decisions import measurements
from benchmarks.decisions.measurements import Plan, rows
from gateway.routing import POLICIES

QUICK = ["--workers", "2", "--waiting", "5", "--decisions", "3", "--rounds", "1"]


def test_every_policy_and_the_queue_are_measured() -> None:
    found = rows(Plan(workers=2, waiting=5, decisions=3, rounds=2))
    assert len(found) == len(POLICIES) + 3
    assert all(row.value > 0 for row in found)
    assert {row.at_most for row in found} == {15.0, 10.0, None}


@pytest.mark.parametrize(("most_us", "status"), [(1e9, 0), (0.0, 1)])
def test_the_status_tells_whether_targets_are_met(
    most_us: float, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measurements, "MOST_RANK_US", most_us)
    monkeypatch.setattr(measurements, "MOST_QUEUE_US", most_us)
    kept = tmp_path / "kept.json"
    ended = CliRunner().invoke(command.main, [*QUICK, "--json", str(kept)])
    assert ended.exit_code == status
    assert "length_bucket" in ended.output
    document = json.loads(kept.read_text())
    assert (document["benchmark"], document["parameters"]["workers"]) == ("decisions", 2)
    assert len(document["rows"]) == len(POLICIES) + 3


def test_results_that_cannot_be_kept_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    ended = CliRunner().invoke(command.main, [*QUICK, "--json", str(tmp_path)])
    assert ended.exit_code == 2


def test_without_a_file_nothing_is_kept() -> None:
    ended = CliRunner().invoke(command.main, QUICK)
    assert "kept in" not in ended.output

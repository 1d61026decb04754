"""Is what is shown and kept of a burst true, and in the units it names?"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.burst import report
from benchmarks.burst.records import Record
from benchmarks.burst.summary import summarize
from tests.benchmarks.test_client import PLAN

ROOT = Path(__file__).resolve().parents[2]


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


def test_versions_leave_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DISTRIBUTIONS", ("openai", "no-such-distribution"))

    assert report.versions().keys() == {"python", "openai"}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_the_commit_is_told_and_whether_files_were_changed_since(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1", encoding="utf-8")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    clean = report.commit(tmp_path)
    (tmp_path / "file").write_text("2", encoding="utf-8")

    assert clean == {"id": git(tmp_path, "rev-parse", "HEAD"), "modified": False}
    assert report.commit(tmp_path) == {"id": clean["id"], "modified": True}


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert report.commit(tmp_path) is None


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert report.commit(ROOT) is None


def test_the_processor_is_the_one_the_kernel_names(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Fine CPU 9\nmodel name\t: Fine CPU 9\n", encoding="utf-8"
    )

    assert report.cpu_model(cpuinfo) == "Fine CPU 9"
    assert report.cpu_model(tmp_path / "absent") is None

"""Does what is kept of a result say where it comes from, and can it be read again?"""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import record


def test_what_is_written_reads_back_the_same_with_one_item_a_line(tmp_path: Path) -> None:
    content = {"benchmark": "any", "parameters": {"of": [1, 2]}, "rows": [{"a": 1}, {"a": [2]}]}

    record.write(tmp_path / "kept.json", content)

    text = (tmp_path / "kept.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert {'  {"a": 1},', '  {"a": [2]}'} <= set(text.splitlines())


def test_versions_leave_out_what_is_not_installed() -> None:
    found = record.versions(("openai", "no-such-distribution"))

    assert found.keys() == {"python", "openai"}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_the_commit_is_told_and_whether_files_were_changed_since(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1", encoding="utf-8")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    clean = record.commit(tmp_path)
    (tmp_path / "file").write_text("2", encoding="utf-8")

    assert clean == {"id": git(tmp_path, "rev-parse", "HEAD"), "modified": False}
    assert record.commit(tmp_path) == {"id": clean["id"], "modified": True}


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert record.commit(tmp_path) is None


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert record.commit() is None


def test_the_processor_is_the_one_the_kernel_names(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Fine CPU 9\nmodel name\t: Fine CPU 9\n", encoding="utf-8"
    )

    assert record.cpu_model(cpuinfo) == "Fine CPU 9"
    assert record.cpu_model(tmp_path / "absent") is None

"""Are results kept so that they can be shown again, and shown so that they can be read?"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import record
from benchmarks.command import CannotStart
from benchmarks.overhead import report
from benchmarks.overhead.contenders import DIRECT, NGINX, REDIS, VLLM_ROUTER
from benchmarks.overhead.report import cell, document, read, tables, version_of
from benchmarks.overhead.results import Result, Results, Spread
from tests.benchmarks.overhead.made import result

RESULTS = [
    result(DIRECT, plain={"requests_per_s": 60_000.0}),
    result(VLLM_ROUTER, plain={"cpu_us": 80.0, "requests_per_s": 12_000.0}),
    result(REDIS, plain={"cpu_us": 60.0, "requests_per_s": 15_000.0}),
    result(REDIS, 2, plain={"cpu_us": 70.0, "requests_per_s": 14_000.0}),
    result(NGINX, problem="it ended"),
]


def shown(*results: Result) -> str:
    console = Console(width=200, record=True)
    for each in tables(Results(results)):
        console.print(each)
    return console.export_text()


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "overhead.json"
    kept = document({"rounds": 2}, datetime(2026, 12, 1, tzinfo=UTC), ["wrk", "setpriv"], RESULTS)
    record.write(file, kept)

    assert read(file) == RESULTS
    assert list(kept)[-1] == "results"
    assert kept["parameters"] == {"rounds": 2}
    assert kept["versions"]["vllm-router"] == "0.1.17"
    assert "litellm" not in kept["versions"]
    assert [row["name"] for row in kept["rows"]][-1] == "plain request: CPU, gateway:redis / vllm-router"
    assert json.loads(file.read_text())["benchmark"] == "overhead"


@pytest.mark.parametrize("text", ["", "[]", '{"benchmark": "routing", "results": []}', '{"results": [{}]}'])
def test_a_file_of_something_else_is_told(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(CannotStart, match="holds no results of this benchmark"):
        read(file)


def test_figures_are_shown_for_those_who_have_them() -> None:
    text = shown(*RESULTS)
    for said in ("60000", "65", "60-70", "plain µs", "0.75", "≤ 1"):
        assert said in text
    assert "p99 ms" not in text  # which nobody has


def test_a_cell_tells_the_range_where_there_is_one() -> None:
    assert cell(None, 1) == ""
    assert cell(Spread(2.04, 2.04, 2.04), 1) == "2.0"
    assert cell(Spread(2.0, 1.0, 3.0), 0) == "2\n1-3"


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ("nginx version: nginx/1.22.1", "1.22.1"),
        ("wrk debian/4.1.0-3+b2 [epoll] Copyright", "4.1.0-3+b2"),
        ("wrk 4.2.0 [epoll] Copyright", "4.2.0"),
        ("Redis server v=7.0.15 sha=00000000:0", "7.0.15"),
        ("what?", None),
    ],
)
def test_programs_tell_their_versions(
    told: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "wrk"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(report, "found", lambda name: str(program))
    assert version_of("wrk") == version


def test_a_program_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "found", lambda name: None)
    monkeypatch.setenv("PATH", "")
    assert version_of("nginx") is None

"""Do all benchmarks of rooms run, and is it told when they do not?"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rooms import suite
from benchmarks.rooms.suite import NotMeasured, Plan, run, times


def test_every_benchmark_runs_once() -> None:
    run("--benchmark-disable")  # or it raises


def test_times_are_those_of_the_fastest_round_of_one_thing() -> None:
    kept: dict[str, list[dict[str, Any]]] = {
        "benchmarks": [
            {"name": "bench_place[2]", "stats": {"min": 0.008, "median": 1.0}, "extra_info": {"steps": 1000}}
        ]
    }

    assert times(kept) == {"place[2]": pytest.approx(8.0)}


def test_a_benchmark_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_broken.py").write_text(
        "def bench_broken(benchmark):\n    raise ValueError('a room')\n"
    )
    monkeypatch.setattr(suite, "FOLDER", tmp_path)

    with pytest.raises(NotMeasured, match=r"pytest ended with status 1:(?s:.*)a room"):
        suite.measure(Plan(1))


def test_no_benchmarks_are_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "FOLDER", tmp_path)

    with pytest.raises(NotMeasured, match="pytest ended with status 5"):
        suite.measure(Plan(1))


def test_a_machine_without_pytest_benchmark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    options = tuple(option.replace("pytest_benchmark", "not_installed") for option in suite.PYTEST)
    monkeypatch.setattr(suite, "PYTEST", options)

    with pytest.raises(NotMeasured, match=r"not_installed"):
        run("--benchmark-disable")


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("pytest", timeout)

    monkeypatch.setattr(subprocess, "run", hang)

    with pytest.raises(NotMeasured, match="took longer than 3600 s"):
        run()

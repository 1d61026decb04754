"""Does the command measure the rooms, show them, keep them, and tell when it cannot?"""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.rooms import __main__ as command
from benchmarks.rooms import suite
from benchmarks.rooms.suite import NotMeasured, Plan
from tests.benchmarks.rooms.made import times
from tests.benchmarks.signalled import ended_by


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def test_a_small_run_gives_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple("--benchmark-min-time=0.0001" if "min-time" in of else of for of in suite.TIMING)
    monkeypatch.setattr(suite, "TIMING", short)
    file = tmp_path / "results" / "rooms.json"

    result = run("--rounds", "1", "--json", str(file))

    assert result.exit_code == 0, result.output
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert (kept["benchmark"], kept["parameters"]) == ("rooms", {"rounds": 1})
    assert {"cpu", "cores"} <= kept["machine"].keys()
    assert {"pytest-benchmark", "uvloop", "vllm-gateway"} <= kept["versions"].keys()
    assert "commit" in kept
    rows = kept["rows"]
    assert len({row["budget"] for row in rows}) == 3
    computed = ("the rest", "wait")
    assert all(row["us"] > 0 for row in rows if not row["name"].startswith(computed))
    assert [row["share"] for row in rows].count(1.0) == 3
    assert "a plain request" in result.stdout
    assert "a streamed chunk, one of 64" in result.stdout
    assert f"kept in {file}" in result.stdout.replace("\n", "")


def test_without_a_file_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Plan] = []

    def measure(plan: Plan) -> dict[str, float]:
        asked.append(plan)
        return times()

    monkeypatch.setattr(command, "measure", measure)

    result = run("--rounds", "7")

    assert result.exit_code == 0
    assert asked == [Plan(7)]
    assert "kept in" not in result.output


@pytest.mark.parametrize("error", [NotMeasured("pytest ended with status 1"), OSError("no such program")])
def test_what_cannot_be_measured_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: Plan) -> dict[str, float]:
        raise error

    monkeypatch.setattr(command, "measure", fail)

    result = run()

    assert result.exit_code == 2
    assert str(error) in result.stderr


def test_a_machine_without_the_programs_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    result = run()

    assert result.exit_code == 2
    assert "'setpriv'" in result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_a_signal_ends_it_and_what_it_started(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    assert await ended_by(number, ("benchmarks.rooms",), 1, tmp_path) == status


def test_results_that_cannot_be_kept_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    assert run("--json", str(tmp_path)).exit_code == 2


def test_rounds_are_one_or_more() -> None:
    assert run("--rounds", "0").exit_code == 2

"""Does the command measure starts, judge them, keep them, and end what it started?"""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.startup import __main__ as command
from benchmarks.targets import Row
from deploy.services import ServiceFailed
from tests.benchmarks.signalled import ended_by


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def test_a_small_run_gives_every_row_with_unit_and_target(tmp_path: Path) -> None:
    file = tmp_path / "results" / "startup.json"

    result = run("--starts", "1", "--json", str(file))

    assert result.exit_code in (0, 1), result.output  # of a busy machine, one start means nothing
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert (kept["benchmark"], kept["parameters"]) == ("startup", {"starts": 1})
    assert [(row["name"], row["unit"], row["target"]) for row in kept["rows"]] == [
        ("imports, CPU, median", "ms", ""),
        ("memory store: exec to ready, median", "ms", "≤ 500 ms"),
        ("memory store: exec to ready, longest", "ms", ""),
        ("memory store: CPU until ready, median", "ms", ""),
        ("redis store: exec to ready, median", "ms", "≤ 500 ms"),
        ("redis store: exec to ready, longest", "ms", ""),
        ("redis store: CPU until ready, median", "ms", ""),
    ]
    assert all(row["value"] > 0 for row in kept["rows"])
    assert {"pydantic", "uvicorn", "vllm-gateway"} <= kept["versions"].keys()
    assert "imports, CPU, median" in result.stdout
    assert result.stderr.splitlines() == ["measuring: imports", "measuring: starts"]


@pytest.mark.parametrize(("value", "status"), [(500.0, 0), (501.0, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Row("context", 1e9, "ms"), Row("judged", value, "ms", at_most=500)]
    monkeypatch.setattr(command, "measure", lambda plan, tell: rows)

    assert run().exit_code == status


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Row]:
        raise ServiceFailed("the gateway ended with status 2")

    monkeypatch.setattr(command, "measure", fail)

    result = run()

    assert result.exit_code == 2
    assert "the gateway ended with status 2" in result.stderr


def test_a_machine_without_the_programs_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    result = run()

    assert result.exit_code == 2
    assert "'setpriv'" in result.stderr


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
async def test_a_signal_ends_it_and_all_that_it_started(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    module = ("benchmarks.startup", "--starts", "100000")
    programs = 3  # a worker, Redis, and a fresh interpreter
    assert await ended_by(number, module, programs, tmp_path, "measuring: imports") == status

"""Does the command call, look, judge and keep, and end the programs that it started?"""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.soak import __main__ as command
from benchmarks.soak.course import PROCESSES, WORKERS, Course, Plan, Stage, course
from deploy.services import ServiceFailed
from tests.benchmarks.signalled import ended_by

PNG = b"\x89PNG"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def test_a_short_run_shows_keeps_and_draws_every_series(tmp_path: Path) -> None:
    file, plot = tmp_path / "results" / "soak.json", tmp_path / "soak.png"

    result = run("--seconds", "5", "--every-s", "0.5", "--json", str(file), "--plot", str(plot))

    assert result.exit_code in (0, 1), result.output  # it has hardly warmed up
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["parameters"]["every_s"] == 0.5
    assert kept["calls"]["whole"] > 10
    assert len(kept["looks"]) == 10
    names = {trend["name"] for trend in kept["trends"]}
    assert names == kept["looks"][0].keys() - {"at_s"}
    for number in range(1, PROCESSES + 1):
        assert {f"PSS of process {number}, MB", f"files of process {number}"} <= names
    assert {"keys in Redis", "memory of Redis, MB", "sockets, established"} <= names
    assert plot.read_bytes().startswith(PNG)


def seen_with(value: Callable[[int], float]) -> Course:
    seen = Course("7.0.15")
    seen.at_s = [float(number) for number in range(40)]
    seen.looks = [{"PSS of process 1, MB": value(number)} for number in range(40)]
    return seen


@pytest.mark.parametrize(("each", "status"), [(0.0, 0), (1.0, 1)])
def test_the_exit_status_tells_whether_anything_grows(
    each: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "course", lambda *_: seen_with(lambda number: 50 + each * number))
    result = run("--seconds", "40")
    assert result.exit_code == status
    assert result.stderr == "calls for 40 s\n"
    assert ("growing" in result.stdout) == bool(status)


@pytest.mark.parametrize("error", [ServiceFailed("the gateway ended"), OSError("the gateway ended")])
def test_what_could_not_be_watched_is_no_growth(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Course:
        raise error

    monkeypatch.setattr(command, "course", fail)
    result = run()
    assert result.exit_code == 2
    assert "the gateway ended" in result.stderr


def test_a_run_too_short_to_tell_is_no_verdict() -> None:
    result = run("--seconds", "1", "--every-s", "0.5")
    assert result.exit_code == 2
    assert "too few" in result.stderr


def test_a_gateway_that_ends_meanwhile_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(seen: Course, stage: Stage) -> None:
        stage.gateway.process.kill()
        stage.gateway.process.wait()
        command._run(seen, stage)

    monkeypatch.setattr(command, "course", lambda plan, folder, _: course(plan, folder, end))
    result = run("--seconds", "3", "--every-s", "0.2")
    assert result.exit_code == 2
    assert "the gateway ended with status -9" in result.stderr


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert Plan() == Plan(7200, 10, 20, 40, 30, 1)


async def test_a_signal_ends_it_and_its_programs(tmp_path: Path) -> None:
    programs = 1 + WORKERS + 1 + PROCESSES
    assert await ended_by(signal.SIGINT, ("benchmarks.soak",), programs, tmp_path) == 130

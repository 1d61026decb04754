"""Does the command measure, judge and keep the costs of limits, and end the Redis that it started?"""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.limits import __main__ as command
from benchmarks.limits import measurements, stores
from benchmarks.limits.measurements import Plan, Round
from benchmarks.limits.server import RedisServer
from benchmarks.targets import Row
from gateway.model import Tenant
from tests.benchmarks.signalled import ended_by

SMALL = ["--callers", "8", "--tenants", "2", "--per-s", "500", "--seconds", "0.05", "--rounds", "1"]


@pytest.fixture(autouse=True)
def _hardly_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "WARM_UP_S", 0.01)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def only(monkeypatch: pytest.MonkeyPatch, *rows: Row) -> list[Plan]:
    """Replace what is measured by these rows. Returns where the plans will be."""
    plans: list[Plan] = []

    def measured(plan: Plan) -> tuple[str, list[Round]]:
        plans.append(plan)
        return "7.0.15", [{}]

    monkeypatch.setattr(command, "measured", measured)
    monkeypatch.setattr(command, "rows", lambda plan, rounds: list(rows))
    return plans


def test_a_small_run_shows_and_keeps_every_row(tmp_path: Path) -> None:
    file = tmp_path / "results" / "limits.json"

    result = run(*SMALL, "--json", str(file))

    assert result.exit_code in (0, 1), result.output  # figures of so small a run mean nothing
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["parameters"] == {"callers": 8, "tenants": 2, "per_s": 500, "seconds": 0.05, "rounds": 1}
    assert len(kept["rounds"]) == 1
    assert len(kept["rows"]) == 11
    assert kept["versions"]["redis-server"]
    assert "added by Redis" in result.stdout
    assert result.stderr.splitlines() == ["measuring for 0 s"]


def test_the_defaults_are_those_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = only(monkeypatch)
    run()
    assert plans == [Plan(callers=64, tenants=8, per_s=4000, seconds=2.0, rounds=5)]


@pytest.mark.parametrize(("value", "status"), [(2.0, 0), (2.1, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, Row("context", 1e9, "ms"), Row("judged", value, "ms", at_most=2))
    assert run().exit_code == status


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = only(monkeypatch)
    (tmp_path / "file").touch()

    result = run("--json", str(tmp_path / "file" / "limits.json"))

    assert (result.exit_code, plans) == (2, [])
    assert "cannot write" in result.stderr


def test_a_machine_without_the_programs_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = run(*SMALL)
    assert result.exit_code == 2
    assert "'setpriv'" in result.stderr


def test_a_store_that_refuses_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "tenants", lambda count: [Tenant("small", requests_per_minute=1)])
    result = run(*SMALL)
    assert result.exit_code == 2
    assert "a store did not do its work: the store refused: requests" in result.stderr


def test_a_redis_that_is_away_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisServer, "url", "redis://127.0.0.1:1/0")
    result = run(*SMALL)
    assert result.exit_code == 2
    assert "a store did not do its work" in result.stderr


def test_a_bug_is_not_taken_for_a_store_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "tenants", lambda count: [None])
    with pytest.raises(ExceptionGroup) as caught:
        run(*SMALL)
    assert caught.group_contains(AttributeError)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
async def test_a_signal_ends_it_and_its_redis(number: signal.Signals, status: int, tmp_path: Path) -> None:
    module = ("benchmarks.limits", "--seconds", "1000")
    assert await ended_by(number, module, 1, tmp_path) == status

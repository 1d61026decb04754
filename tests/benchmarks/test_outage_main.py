"""Does the command run, judge and keep the scenarios, and end the programs that it started?"""

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from benchmarks.outage import __main__ as command
from benchmarks.outage import exact, freeze, kill, sdk
from benchmarks.outage.__main__ import Scenario, scenarios
from benchmarks.outage.rig import Stand
from benchmarks.targets import Row
from deploy.services import ServiceFailed
from tests.benchmarks.signalled import ended_by

SMALL = scenarios(
    freeze.Plan(0.1, 0.5, 0.6, 0.3, per_s=50, limited_per_s=20, limited_per_minute=120, streams=2),
    kill.Plan(kept_s=4.0, before_s=0.1, lease_ttl_s=3),
    sdk.Plan(per_minute=40, calls=41),
    exact.Plan(calls=40, budget_calls=12, max_tokens=90),
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def only(monkeypatch: pytest.MonkeyPatch, run: Callable[[Stand], Coroutine[Any, Any, list[Row]]]) -> None:
    """Replace all scenarios by two that do this."""
    made = Scenario("the question", 0.0, sdk.Plan(per_minute=1, calls=1), run)
    monkeypatch.setattr(command, "SCENARIOS", {"freeze": made, "sdk": made})


def giving(*rows: Row) -> Callable[[Stand], Coroutine[Any, Any, list[Row]]]:
    async def answer(at: Stand) -> list[Row]:
        return list(rows)

    return answer


def failing(error: Exception) -> Callable[[Stand], Coroutine[Any, Any, list[Row]]]:
    async def fail(at: Stand) -> list[Row]:
        raise error

    return fail


def test_a_small_run_of_all_scenarios_shows_and_keeps_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SCENARIOS", SMALL)
    file = tmp_path / "results" / "outage.json"

    result = run("--json", str(file))

    assert result.exit_code in (0, 1), result.output  # so small a run meets targets by chance
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert list(kept["parameters"]) == ["freeze", "kill", "sdk", "exact"]
    assert kept["parameters"]["sdk"] == {"per_minute": 40, "calls": 41}
    assert kept["versions"]["redis-server"]
    values = {(row["scenario"], row["name"]): row["value"] for row in kept["rows"]}
    assert len(values) == len(kept["rows"]) == 15 + 8 + 4 + 8
    assert values["freeze", "of these by each process's own limits"] >= 1
    assert values["freeze", "limited tenant, granted in the freeze"] >= 1
    assert values["freeze", "streams across the freeze, whole"] == 2
    assert values["freeze", "log lines about Redis, per process"] >= 1
    assert values["kill", "others refused"] >= 1
    assert values["kill", "others granted"] >= 1
    assert values["kill", "stream of 4 s, whole"] == 1
    assert (values["sdk", "calls that raised"], values["sdk", "calls that reached the worker"]) == (0, 41)
    assert values["sdk", "retries of the SDK"] >= 1
    assert values["exact", "40 calls at once, 20 a minute: at the worker"] >= 20
    assert 1 <= values["exact", "12 calls at once, 1000 tokens: granted"] < 12
    assert "streams across the freeze" in result.stdout
    assert result.stderr.splitlines()[1] == "a gateway is killed with streams under way: 4 s"


def test_the_defaults_are_those_of_the_documentation() -> None:
    plans = {name: scenario.plan for name, scenario in command.SCENARIOS.items()}
    assert plans == {
        "freeze": freeze.Plan(3, 10, 30, 5, 200, 10, 60, 10, 30),
        "kill": kill.Plan(100, 1, 30),
        "sdk": sdk.Plan(10, 15),
        "exact": exact.Plan(20, 200, 1000, 20, 100),
    }


@pytest.mark.parametrize(("value", "status"), [(2.0, 0), (2.1, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, giving(Row("context", 1e9, "ms"), Row("judged", value, "ms", at_most=2)))
    assert run("--only", "sdk").exit_code == status


@pytest.mark.parametrize(
    ("arguments", "times"), [((), 2), (("--only", "sdk"), 1), (("--only", "sdk", "--only", "freeze"), 2)]
)
def test_only_what_is_asked_for_is_run(
    arguments: tuple[str, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, giving())
    assert run(*arguments).stderr.splitlines() == ["the question: 0 s"] * times


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, failing(AssertionError("it was run")))
    (tmp_path / "file").touch()

    result = run("--json", str(tmp_path / "file" / "outage.json"))

    assert result.exit_code == 2
    assert "cannot write" in result.stderr


@pytest.mark.parametrize(
    "error",
    [
        ServiceFailed("gateway 0 ended"),
        httpx.ConnectError("gateway 0 ended"),
        ExceptionGroup("of tasks", [httpx.ReadError("gateway 0 ended")]),
    ],
)
def test_what_could_not_be_measured_is_no_miss(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, failing(error))
    result = run()
    assert result.exit_code == 2
    assert "the question: gateway 0 ended" in result.stderr


def test_a_bug_is_not_taken_for_a_failure_of_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, failing(ExceptionGroup("of tasks", [OSError("lost"), AttributeError("bug")])))
    with pytest.raises(ExceptionGroup) as caught:
        run()
    assert caught.group_contains(AttributeError)


def test_a_scenario_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(at: Stand) -> list[Row]:
        await asyncio.Event().wait()
        return []

    only(monkeypatch, hang)
    monkeypatch.setattr(command, "SPARE_S", 0.0)
    result = run()
    assert result.exit_code == 2
    assert "took longer than 0 s" in result.stderr


def test_a_machine_without_the_programs_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, giving())
    monkeypatch.setenv("PATH", "")
    result = run()
    assert result.exit_code == 2
    assert "'setpriv'" in result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_a_signal_ends_it_and_its_programs(number: signal.Signals, status: int, tmp_path: Path) -> None:
    programs = 2 + freeze.PROCESSES  # Redis and the gateway's parent
    assert await ended_by(number, ("benchmarks.outage",), programs, tmp_path) == status

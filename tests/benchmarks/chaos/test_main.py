"""Does the command start, disturb, judge and keep a run, and end the programs that it started?"""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.chaos import __main__ as command
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.mischief import EVERY_S
from benchmarks.chaos.plan import PROCESSES, REPLICAS, WORKERS, Plan
from benchmarks.chaos.report import RULES
from deploy.services import ServiceFailed
from tests.benchmarks.chaos.told import found
from tests.benchmarks.signalled import ended_by

# These hold whatever the machine is busy with; others tell of it, too, if it stands still for seconds.
SURE = {"each success is complete", "no success is invented", "all leases are freed", "no bug shows"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def test_a_fast_run_has_all_faults_and_judges_all_rules(tmp_path: Path) -> None:
    file = tmp_path / "results" / "chaos.json"

    result = run("--fast", "--json", str(file), "--logs", str(tmp_path / "logs"))

    kept = json.loads(file.read_text(encoding="utf-8"))
    assert result.exit_code == bool(kept["violations"]), result.output
    assert kept["counts"]["faults"] == dict.fromkeys(EVERY_S, 1)
    assert kept["counts"]["calls"]["all"] > 50
    assert kept["counts"]["outcomes"]["whole"] > 20
    assert kept["counts"]["at workers"]["done"] > 20
    assert kept["counts"]["tokens charged"] > 0
    found = {each["rule"]: each["evidence"] for each in kept["rules"]}
    assert found.keys() == RULES.keys()
    assert [found[rule] for rule in sorted(SURE) if found[rule]] == []
    logs = tmp_path / "logs"
    assert [log.name for log in logs.glob("w*.log") if "Traceback" in log.read_text(encoding="utf-8")] == []
    assert {path.name for path in logs.glob("*.jsonl")} == {
        "calls.jsonl",
        "mishaps.jsonl",
        "visits.jsonl",
    }


def judged(monkeypatch: pytest.MonkeyPatch, evidence: Evidence) -> None:
    """Put this in place of a run."""

    async def answer(plan: Plan, folder: Path) -> tuple[Evidence, str]:
        return evidence, "7.0.15"

    monkeypatch.setattr(command, "run", answer)


@pytest.mark.parametrize(("leases", "status"), [(0, 0), (1, 1)])
def test_the_exit_status_tells_whether_every_promise_was_kept(
    leases: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, found(leases=leases))
    result = run("--seconds", "60")
    assert result.exit_code == status
    assert result.stderr == "callers call for 60 s\n"
    assert ("all leases are freed: 1 leases are left" in result.stdout) == bool(status)


@pytest.mark.parametrize(
    "error", [ServiceFailed("gateway 0 ended"), ExceptionGroup("of tasks", [OSError("gateway 0 ended")])]
)
def test_what_could_not_be_tried_is_no_broken_promise(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(plan: Plan, folder: Path) -> tuple[Evidence, str]:
        raise error

    monkeypatch.setattr(command, "run", fail)
    result = run("--fast")
    assert result.exit_code == 2
    assert "gateway 0 ended" in result.stderr


def test_a_bug_is_not_taken_for_a_failure_of_what_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(plan: Plan, folder: Path) -> tuple[Evidence, str]:
        raise ExceptionGroup("of tasks", [OSError("lost"), AttributeError("bug")])

    monkeypatch.setattr(command, "run", fail)
    with pytest.raises(ExceptionGroup) as caught:
        run("--fast")
    assert caught.group_contains(AttributeError)


async def test_a_signal_ends_it_and_its_programs(tmp_path: Path) -> None:
    programs = 1 + WORKERS + REPLICAS * (1 + PROCESSES)
    assert await ended_by(signal.SIGINT, ("benchmarks.chaos", "--fast"), programs, tmp_path) == 130

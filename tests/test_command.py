"""Does the one test command run every check, say how each went, and fail if one did?"""

import sys
from pathlib import Path

import pytest

from tests import __main__ as command

PASSES = [sys.executable, "-c", "pass"]
FAILS = [sys.executable, "-c", "raise SystemExit(2)"]


def run(monkeypatch: pytest.MonkeyPatch, **commands: list[str]) -> int:
    monkeypatch.setattr(command, "_set_up", lambda quick: Path(sys.executable))
    monkeypatch.setattr(command, "checks", lambda *arguments: commands)
    return command.main([])


def test_all_checks_passing_is_a_success(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, one=PASSES, two=PASSES) == 0
    assert capfd.readouterr().out.count(" passed ") == 2


def test_one_failing_check_fails_the_run_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, one=FAILS, two=PASSES) == 1
    one, two = capfd.readouterr().out.splitlines()[-2:]
    assert one.split()[:3] == ["one", "FAILED", "(2)"]
    assert two.split()[:2] == ["two", "passed"]


def test_whole_run_checks_style_types_imports_and_coverage() -> None:
    checks = command.checks(Path("/venv/bin/python"), quick=False, for_pytest=[])
    assert checks == {
        "ruff format": ["/venv/bin/ruff", "format", "--check"],
        "ruff check": ["/venv/bin/ruff", "check"],
        "mypy": ["/venv/bin/mypy"],
        "import-linter": ["/venv/bin/lint-imports"],
        "advisories": ["/venv/bin/python", "-m", "tests.audit"],
        "pytest": ["/venv/bin/python", "-m", "pytest", "--cov", "--cov-report=term"],
        "compiled": ["/venv/bin/python", "-m", "tests.compiled"],
    }


def test_quick_run_leaves_out_real_workers_the_coverage_limit_and_compiling() -> None:
    checks = command.checks(Path("/venv/bin/python"), quick=True, for_pytest=["-k", "limits"])
    assert checks["pytest"][3:] == ["-m", "not real", "-k", "limits"]
    assert "compiled" not in checks


def test_missing_program_is_told_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["--quick"]) == 1
    assert "apt-get install docker-compose prometheus redis-server\n" in capsys.readouterr().err
    assert command.main([]) == 1
    assert "apt-get install docker-compose prometheus redis-server gcc\n" in capsys.readouterr().err


def test_ctrl_c_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(quick: bool) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_set_up", interrupted)
    assert command.main([]) == 130

"""Is the project installed into the checkout's `.venv` when that is needed, and only then?

A scripted interpreter stands in for Python and pip.
"""

import sys
from pathlib import Path

import pytest

from deploy.bootstrap import ensure_environment
from workers.cpu import CommandFailed

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
INTERPRETER = f"""#!{sys.executable}
import os, pathlib, sys
state = pathlib.Path(os.environ["FAKE_STATE"])
with (state / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
if "venv" in sys.argv:
    venv = pathlib.Path(sys.argv[-1])
    (venv / "lib" / "{VERSION}").mkdir(parents=True, exist_ok=True)
    (venv / "bin").mkdir(exist_ok=True)
    if not (venv / "bin" / "python").exists():
        (venv / "bin" / "python").symlink_to(state / "python")
elif "--editable" in sys.argv and (state / "broken").exists():
    sys.exit("no space left on device")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the interpreter lies and records its calls."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "calls").write_text("")
    (state / "python").write_text(INTERPRETER)
    (state / "python").chmod(0o755)
    monkeypatch.setenv("FAKE_STATE", str(state))
    monkeypatch.setattr(sys, "executable", str(state / "python"))
    return state


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text("[project]\n")
    return checkout


def ensure(extra: str, checkout: Path) -> Path:
    return ensure_environment(extra, lambda text: None, checkout)


def calls(state: Path) -> list[str]:
    """The calls since they were last asked for."""
    lines = (state / "calls").read_text().splitlines()
    (state / "calls").write_text("")
    return lines


def test_project_is_installed_with_its_extra(state: Path, checkout: Path) -> None:
    assert ensure("bench", checkout) == checkout / ".venv" / "bin" / "python"
    creation, _, installation = calls(state)
    assert creation == f"-m venv {checkout}/.venv"
    assert installation.endswith(f"--editable {checkout}[bench]")


def test_second_call_runs_nothing(state: Path, checkout: Path) -> None:
    ensure("bench", checkout)
    calls(state)
    ensure("bench", checkout)
    assert calls(state) == []


def test_another_extra_is_added_to_the_same_environment(state: Path, checkout: Path) -> None:
    ensure("bench", checkout)
    calls(state)
    ensure("dev", checkout)
    assert not any("--clear" in call for call in calls(state))
    ensure("bench", checkout)
    assert calls(state) == []


def test_changed_project_is_installed_again(state: Path, checkout: Path) -> None:
    ensure("bench", checkout)
    calls(state)
    (checkout / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    ensure("bench", checkout)
    assert calls(state)[-1].endswith("[bench]")


def test_failed_installation_is_tried_again(state: Path, checkout: Path) -> None:
    (state / "broken").touch()
    with pytest.raises(CommandFailed, match="no space left"):
        ensure("bench", checkout)
    (state / "broken").unlink()
    calls(state)
    ensure("bench", checkout)
    assert calls(state)[-1].endswith("[bench]")


@pytest.mark.parametrize("lost", [f"lib/{VERSION}", "bin/python"])
def test_environment_of_another_python_is_made_anew(lost: str, state: Path, checkout: Path) -> None:
    ensure("bench", checkout)
    calls(state)
    (checkout / ".venv" / lost).rename(checkout / "gone")
    (checkout / ".venv" / "installed-bench.txt").unlink()
    ensure("bench", checkout)
    assert calls(state)[0] == f"-m venv --clear {checkout}/.venv"


def test_environment_that_we_run_from_is_not_made_anew(
    state: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure("bench", checkout)
    calls(state)
    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    ensure("dev", checkout)
    assert not any("venv" in call.split() for call in calls(state))

"""Does the search run, keep what it finds, and tell of a fault?"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import __main__ as command
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SEARCH = (sys.executable, "-m", "tests.fuzz", "--seconds", "1")


def test_each_target_can_be_named() -> None:
    assert set(command.TARGETS) == set(TARGETS)


def test_a_search_keeps_what_reaches_something_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SEARCH, "--target", "response", "--found", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "response").iterdir())
    assert len((tmp_path / "response.dict").read_text().splitlines()) == len(TARGETS["response"].words)


def test_a_fault_ends_a_search_and_its_bytes_are_kept(tmp_path: Path) -> None:
    """A fault of the test's own: the target refuses everything."""
    (tmp_path / "tests" / "fuzz").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "tests" / "fuzz" / name).write_text((ROOT / "tests" / "fuzz" / name).read_text())
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "tests" / "fuzz" / "targets.py").write_text(ALL_FAIL)
    done = subprocess.run(
        [*SEARCH, "--target", "sse", "--found", tmp_path / "found"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 77
    assert "AssertionError: all is wrong" in done.stdout + done.stderr
    assert [path for path in (tmp_path / "found").iterdir() if path.name.startswith("sse-crash-")]


ALL_FAIL = """
from pathlib import Path
from types import SimpleNamespace

def check(data):
    assert len(data) < 3, "all is wrong"

TARGETS = {"sse": SimpleNamespace(check=check, words=(b"abcd",), folder=Path(__file__).parent)}
"""


def test_without_atheris_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit) as ended:
        command.main(["--target", "sse"])
    assert ended.value.code == 2
    assert "needs atheris" in capsys.readouterr().err

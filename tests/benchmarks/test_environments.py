"""Is a program with extras installed with them, in a folder of its name; and ours compiled from a copy?"""

import sys
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.environments import compiled, installed
from deploy.services import ServiceFailed
from tests.benchmarks.routing.test_rivals import interpreter


def test_extras_are_installed_and_not_in_the_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path))

    program = installed("thing[proxy]", "1.2", "serve-it", tmp_path)

    place = tmp_path / "rivals" / "thing-1.2"
    assert program == place / "bin" / "serve-it"
    assert (place / "asked").read_text() == "-m pip install --quiet thing[proxy]==1.2\n"


def test_the_gateway_is_compiled_from_a_copy_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def run(*command: str, **environ: str) -> None:
        sources = Path(command[-1])
        assert (sources / "gateway" / "call.py").is_file()
        assert not list(sources.rglob("__pycache__"))
        ran.append((command, environ))

    monkeypatch.setattr(environments, "_run", run)
    compiled(tmp_path / "built")
    [(command, environ)] = ran
    assert command[:-1][-2:] == ("--target", str(tmp_path / "built"))
    assert environ == {"HATCH_BUILD_HOOKS_ENABLE": "true"}
    assert not Path(command[-1]).exists()


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ServiceFailed, match="apt-get install gcc python3-dev"):
        compiled(tmp_path)

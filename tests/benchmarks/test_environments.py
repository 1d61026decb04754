"""Is a program with extras installed with them, where its name alone says?"""

import sys
from pathlib import Path

import pytest

from benchmarks.environments import installed
from tests.benchmarks.routing.test_rivals import interpreter


def test_extras_are_installed_and_not_in_the_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path))

    program = installed("thing[proxy]", "1.2", "serve-it", tmp_path)

    place = tmp_path / "rivals" / "thing-1.2"
    assert program == place / "bin" / "serve-it"
    assert (place / "asked").read_text() == "-m pip install --quiet thing[proxy]==1.2\n"

"""A command run in this process, on a file of its own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.__main__ import main
from tests.gateway.configuration.files import ANY_PORT, GOOD

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GATEWAY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def gateway() -> Run:
    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="gateway")

    return run


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A configuration on free ports, with tenant acme and its key acme-1; its worker is down."""
    path = tmp_path / "gateway.toml"
    path.write_text(ANY_PORT + GOOD, encoding="utf-8")
    return path

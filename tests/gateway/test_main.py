"""Does the command line list its commands, and say what they do?"""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway import __version__
from gateway.__main__ import main

COMMANDS = [
    ["check"],
    ["serve"],
    ["keys", "create", "--tenant", "acme"],
    ["keys", "list"],
    ["keys", "rotate", "acme-1"],
    ["keys", "revoke", "acme-1"],
    ["keys", "admin"],
]


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GATEWAY_")]:
        monkeypatch.delenv(name)


def gateway(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="gateway")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_file_says_so(command: list[str], tmp_path: Path) -> None:
    left_out = gateway(*command)
    missing = gateway(*command, "--config", tmp_path / "none.toml")
    folder = gateway(*command, "--config", tmp_path)

    assert left_out.exit_code == missing.exit_code == folder.exit_code == 2
    assert "Missing option '--config'" in left_out.stderr
    assert missing.stderr.startswith(f"{tmp_path}/none.toml: cannot be read: No such file or directory.")
    assert "is a directory" in folder.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["check", "keys", "serve", "usage", "Serve until SIGTERM", "--version"]),
        (["serve"], ["--config FILE", "GATEWAY_SECTION_FIELD", "a second one ends it at once"]),
        (["check"], ["--config FILE", "Exit status"]),
        (["keys"], ["create", "list", "rotate", "revoke", "admin"]),
        (["keys", "create"], ["--tenant", "--id", "--expires", "The secret is printed once"]),
        (["keys", "list"], ["--tenant", "--json"]),
        (["keys", "rotate"], ["[ID]", "--grace", "[default: 1h]", "printed once"]),
        (["keys", "revoke"], ["[ID]", "for good"]),
        (["keys", "admin"], ["the configuration takes its hash"]),
    ],
)
def test_help_says_what_a_command_does(command: list[str], words: list[str]) -> None:
    result = gateway(*command, "--help")

    assert result.exit_code == 0
    assert [word for word in words if word not in " ".join(result.stdout.split())] == []
    assert result.stdout == gateway(*command, "-h").stdout


def test_version_is_that_of_the_package() -> None:
    assert gateway("--version").stdout == f"gateway, version {__version__}\n"

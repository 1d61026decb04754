"""Does the command line do what it says, with the exit status that scripts rely on?"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway import __version__
from gateway.__main__ import main
from tests.conftest import KEY, served
from tests.gateway.configuration.files import ANY_PORT, BROKEN, GOOD, NAMES, expected

SECRETS = ("hunter2", "sk-live-secret", "user:secret", "1234567")


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GATEWAY_")]:
        monkeypatch.delenv(name)


def gateway(*arguments: str | Path) -> Result:
    """A command, run in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="gateway")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A configuration on free ports, whose worker is down."""
    path = tmp_path / "gateway.toml"
    write(path, ANY_PORT + GOOD)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


# check


@pytest.mark.parametrize("file", BROKEN, ids=NAMES)
def test_check_tells_every_problem_of_a_broken_file_on_its_own_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)

    result = gateway("check", "--config", file.name)

    count = len(expected(file))
    summary = f"{file.name}: {count} problem{'s' if count > 1 else ''}"
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [*expected(file), summary]
    assert result.stdout == ""
    assert not any(secret in result.stderr for secret in SECRETS)


def test_check_as_a_program_tells_problems_without_a_traceback() -> None:
    file = BROKEN[NAMES.index("problems_of_every_kind")]

    done = subprocess.run(
        [sys.executable, "-m", "gateway", "check", "--config", file],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [*expected(file), f"{file}: {len(expected(file))} problems"]


def test_check_prints_the_settings_in_effect_and_no_secret(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_SERVER_PORT", "9000")
    monkeypatch.setenv("GATEWAY_AUTH_CACHE_SALT_SECRET", "hunter2")

    result = gateway("check", "--config", good)

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(re.fullmatch(r"[a-z]+(\[\d+\])?\.[a-z0-9_]+ = .+", line) for line in lines)
    assert {"server.port = 9000", "server.admin_port = 0", 'auth.cache_salt_secret = "(hidden)"'} <= {*lines}
    assert "hunter2" not in result.output


@pytest.mark.parametrize("command", [["check"], ["serve"], ["keys", "create", "--tenant", "acme"]])
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
        ([], ["check", "keys", "serve", "Serve until SIGTERM", "--version"]),
        (["serve"], ["--config FILE", "GATEWAY_SECTION_FIELD", "a second one ends it at once"]),
        (["check"], ["--config FILE", "Exit status"]),
        (["keys"], ["create"]),
        (["keys", "create"], ["--tenant", "--id", "The secret is printed once"]),
    ],
)
def test_help_says_what_a_command_does(command: list[str], words: list[str]) -> None:
    result = gateway(*command, "--help")

    assert result.exit_code == 0
    assert [word for word in words if word not in " ".join(result.stdout.split())] == []
    assert result.stdout == gateway(*command, "-h").stdout


def test_version_is_that_of_the_package() -> None:
    assert gateway("--version").stdout == f"gateway, version {__version__}\n"


# keys create


def made_by(result: Result) -> tuple[str, str]:
    """The secret that was printed, and the TOML to paste."""
    assert (result.exit_code, result.stderr) == (0, "")
    (secret,) = re.findall(r"^ +(sk-\S{43})$", result.stdout, re.MULTILINE)
    return secret, result.stdout[result.stdout.index("[[keys]]") :]


async def test_a_key_is_made_that_opens_the_door_once_it_is_pasted(good: Path) -> None:
    text = GOOD.partition("[[keys]]")[0]
    write(good, text)

    secret, pasted = made_by(gateway("keys", "create", "--config", good, "--tenant", "acme"))

    async with (
        served(tomllib.loads(text + pasted), wait_ready=False) as running,
        running.http(secret) as known,
        running.http(KEY) as unknown,
    ):
        assert (await known.get("/v1/models")).status_code == 200
        assert (await unknown.get("/v1/models")).status_code == 401
    assert secret not in pasted


def test_a_key_can_be_given_its_name(good: Path) -> None:
    _, pasted = made_by(gateway("keys", "create", "--config", good, "--tenant", "acme", "--id", "acme-2"))

    (key,) = tomllib.loads(pasted)["keys"]
    assert (key["id"], key["tenant"]) == ("acme-2", "acme")


def test_no_two_keys_are_alike(good: Path) -> None:
    secrets, pasted = zip(
        *(made_by(gateway("keys", "create", "--config", good, "--tenant", "acme")) for _ in range(2)),
        strict=True,
    )

    assert len(set(secrets)) == 2
    assert len({tomllib.loads(text)["keys"][0]["id"] for text in pasted}) == 2


def test_the_name_made_for_a_key_fits_however_long_the_tenants_is(good: Path) -> None:
    tenant = "t" * 64
    write(
        good,
        GOOD.replace('id = "acme"', f'id = "{tenant}"').replace('tenant = "acme"', f'tenant = "{tenant}"'),
    )

    _, pasted = made_by(gateway("keys", "create", "--config", good, "--tenant", tenant))

    (key,) = tomllib.loads(pasted)["keys"]
    assert len(key["id"]) <= 64
    assert key["tenant"] == tenant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tenant", "acne"], "--tenant acne: not in {path}, which has: acme"),
        (["--tenant", "acme", "--id", "acme-1"], "--id acme-1: there is a key of that name already"),
        (["--tenant", "acme", "--id", 'a"b'], '--id a"b: must be 1 to 64 letters, digits or . _ -'),
        (["--tenant", "acme", "--id", "a b"], "--id a b: must be 1 to 64 letters, digits or . _ -"),
        ([], "Missing option '--tenant'"),
    ],
)
def test_a_key_that_could_not_be_used_is_not_made(good: Path, arguments: list[str], message: str) -> None:
    result = gateway("keys", "create", "--config", good, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {message.format(path=good)}" in result.stderr


def test_where_there_is_no_tenant_a_key_is_refused(good: Path) -> None:
    write(good, GOOD.partition("[[tenants]]")[0])

    result = gateway("keys", "create", "--config", good, "--tenant", "acme")

    assert result.exit_code == 2
    assert "which has: none" in result.stderr


# serve


def test_serve_takes_no_broken_file() -> None:
    file = BROKEN[NAMES.index("nobody_could_call")]

    result = gateway("serve", "--config", file)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [*expected(file), f"{file}: 1 problem"]

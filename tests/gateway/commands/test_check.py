"""Does `gateway check` tell what is wrong with a file, and what is in effect?"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.commands.conftest import Run
from tests.gateway.configuration.files import BROKEN, NAMES, expected

SECRETS = ("hunter2", "sk-live-secret", "user:secret", "1234567")


@pytest.mark.parametrize("file", BROKEN, ids=NAMES)
def test_check_tells_every_problem_of_a_broken_file_on_its_own_line(
    gateway: Run, file: Path, monkeypatch: pytest.MonkeyPatch
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
    gateway: Run, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_SERVER_PORT", "9000")
    monkeypatch.setenv("GATEWAY_AUTH_CACHE_SALT_SECRET", "hunter2")

    result = gateway("check", "--config", good)

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(re.fullmatch(r"[a-z]+(\[\d+\])?\.[a-z0-9_]+ = .+", line) for line in lines)
    assert {"server.port = 9000", "server.admin_port = 0", 'auth.cache_salt_secret = "(hidden)"'} <= {*lines}
    assert "hunter2" not in result.output

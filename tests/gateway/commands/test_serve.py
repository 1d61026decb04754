"""Does `gateway serve` refuse what it cannot serve? How it runs is in test_main_serve.py."""

from tests.gateway.commands.conftest import Run
from tests.gateway.configuration.files import BROKEN, NAMES, expected


def test_serve_takes_no_broken_file(gateway: Run) -> None:
    file = BROKEN[NAMES.index("nobody_could_call")]

    result = gateway("serve", "--config", file)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [*expected(file), f"{file}: 1 problem"]

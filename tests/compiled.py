"""Is the gateway the same once it is compiled? Builds it as the container image has it, and runs the
end-to-end tests against that, and those of rooms whose tests replace no class: `python -m tests.compiled`,
with options for pytest.

One lane is enough here: what tells the lanes apart is in the tests of the sources.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import environments
from deploy.services import ServiceFailed

TESTED_WITH = ("tests", "deploy", "pyproject.toml", "docker-compose.yml", "README.md")
ROOMS = ("admission", "estimates", "fairness", "intake", "relay", "routing", "upstream")
TESTS = ("tests/e2e", "tests/hostile", *(f"tests/gateway/{room}" for room in ROOMS))
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-m", "not real", "-k", "not asgi", *TESTS)
IS_COMPILED = "from gateway.call import __file__ as it; assert it.endswith('.so'), f'{it} is not compiled'"


def main(argv: Sequence[str]) -> int:
    """Returns pytest's exit status; 1 if the gateway could not be compiled."""
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        built, checkout = Path(folder, "built"), Path(folder, "checkout")
        try:
            environments.compiled(built)
        except ServiceFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        environments.copy_of_checkout(TESTED_WITH, checkout)
        environ = os.environ | {"PYTHONPATH": str(built)}  # before the sources, where those are installed
        for command in (("-c", IS_COMPILED), (*PYTEST, *argv)):
            done = subprocess.run([sys.executable, *command], env=environ, cwd=checkout, check=False)
            if done.returncode != 0:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

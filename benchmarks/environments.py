"""Where do programs come from? Others' from the package index, the compiled gateway from the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.record import CHECKOUT
from deploy.services import ServiceFailed
from workers.cpu import default_cache

INSTALL_LIMIT_S = 900.0
BUILT_FROM = ("gateway", "workers", "benchmarks", "pyproject.toml", "README.md", "LICENSE")


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


def compiled(to: Path) -> None:
    """Put the gateway there as the container image has it: for PYTHONPATH. Raises ServiceFailed.

    Built from a copy: in the checkout, compiled modules would come before the sources from then on.
    """
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if shutil.which(os.environ.get("CC", "cc")) is None or not headers.is_file():
        raise ServiceFailed(
            "to compile it takes a C compiler and Python's headers (apt-get install gcc python3-dev)"
        )
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        copy_of_checkout(BUILT_FROM, sources := Path(folder, "sources"))
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
        _run(*pip, "--target", str(to), str(sources), HATCH_BUILD_HOOKS_ENABLE="true")


def copy_of_checkout(names: Iterable[str], to: Path) -> None:
    """Files and folders of the top of the checkout, without bytecode."""
    to.mkdir()
    for name in names:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, to)


def _run(*command: str, **environ: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | environ,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceFailed(f"{' '.join(command)} took longer than {INSTALL_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        raise ServiceFailed(f"{' '.join(command)} failed.\n{done.stderr.strip()}")

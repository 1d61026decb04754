"""Which command checks everything? `python3 -m tests`: it sets itself up, then runs every check there is.

Needs Python 3.11 or newer; the Debian packages it names are the only thing it does not install itself.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python runs into
    sys.exit("This needs Python 3.11 or newer. Install one and call it by name: python3.12 -m tests")

from deploy.bootstrap import ROOT, ensure_environment
from workers.cpu import CannotInstall, CommandFailed, Steps, install

# The programs that tests start, and the Debian package of each.
PROGRAMS = {"docker-compose": "docker-compose", "promtool": "prometheus", "redis-server": "redis-server"}
COMPILER = {"cc": "gcc"}  # for the compiled gateway


def main(argv: Sequence[str] | None = None) -> int:
    """Set up, run every check, say how each went; returns 0 if all passed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests",
        description="Install what the tests need, then run ruff, mypy, import-linter, pip-audit and pytest; "
        "then end-to-end tests again on a gateway that is compiled.",
        epilog="All other arguments go to pytest, for example: python3 -m tests --quick -k limits",
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out real vLLM workers and the compiled gateway"
    )
    options, for_pytest = parser.parse_known_args(argv)
    try:
        python = _set_up(options.quick)
        return _report(_run(checks(python, options.quick, for_pytest)))
    except (CannotInstall, CommandFailed) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _set_up(quick: bool) -> Path:
    programs = PROGRAMS if quick else PROGRAMS | COMPILER
    if missing := [package for program, package in programs.items() if shutil.which(program) is None]:
        raise CannotInstall(f"tests start programs that are missing: apt-get install {' '.join(missing)}")
    steps = Steps()
    with steps.step("Python environment in .venv") as detail:
        python = ensure_environment("dev", detail)
    if not quick:
        install(steps=steps)
    return python


def checks(python: Path, quick: bool, for_pytest: Sequence[str]) -> dict[str, list[str]]:
    """Each check's name and command, the quickest first."""
    tool = {name: str(python.with_name(name)) for name in ("ruff", "mypy", "lint-imports")}
    marker = ["-m", "not real"] if quick else []
    # Part of the tests cannot cover everything, so only the whole suite is held to the coverage limit.
    coverage = [] if for_pytest or quick else ["--cov", "--cov-report=term"]
    found = {
        "ruff format": [tool["ruff"], "format", "--check"],
        "ruff check": [tool["ruff"], "check"],
        "mypy": [tool["mypy"]],
        "import-linter": [tool["lint-imports"]],
        "advisories": [str(python), "-m", "tests.audit"],
        "pytest": [str(python), "-m", "pytest", *coverage, *marker, *for_pytest],
    }
    if not for_pytest and not quick:
        found["compiled"] = [str(python), "-m", "tests.compiled"]
    return found


def _run(commands: dict[str, list[str]]) -> dict[str, tuple[int, float]]:
    """Run all, also after a failure; a check's exit status and seconds."""
    results = {}
    for name, argv in commands.items():
        print(f"\n--- {name}", flush=True)
        started_s = time.monotonic()
        status = subprocess.run(argv, cwd=ROOT, check=False).returncode
        results[name] = (status, time.monotonic() - started_s)
    return results


def _report(results: dict[str, tuple[int, float]]) -> int:
    print("\n--- summary")
    for name, (status, seconds) in results.items():
        print(f"{name:14} {'passed' if status == 0 else f'FAILED ({status})':12} {seconds:6.1f} s")
    return int(any(status for status, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m workers.cpu`: which command installs the CPU worker?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.cpu import CannotInstall, CommandFailed, default_cache, install
from workers.cpu.installation import MODEL_VARIABLE


def main(argv: Sequence[str] | None = None) -> int:
    """Install and say what lies where; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.cpu",
        description="Install vLLM for the CPU and SmolLM2-135M-Instruct, so that real workers run without a "
        "GPU. Downloads about 0.8 GB and takes 3 GB of disk. Repeating it installs only what is missing.",
    )
    parser.add_argument("--cache", type=Path, help=f"where to install (default: {default_cache()})")
    parser.add_argument(
        "--model", type=Path, help=f"a ready model directory to use instead (default: ${MODEL_VARIABLE})"
    )
    options = parser.parse_args(argv)
    try:
        environment = install(options.cache, options.model)
    except (CannotInstall, CommandFailed) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run it again to go on", file=sys.stderr)
        return 130
    print(f"python  {environment.python}\nmodel   {environment.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

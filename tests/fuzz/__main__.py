"""Search for bytes that show a fault: `python -m tests.fuzz --target sse --seconds 60`.

atheris changes bytes of the corpus and keeps what reaches code that nothing reached before. What it keeps,
and what shows a fault, is in build/fuzz, where the next search goes on. A fault's bytes belong in the corpus.
"""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

TARGETS = ("intake", "protocol", "response", "sse")
FOUND = Path(__file__).resolve().parents[2] / "build" / "fuzz"
MOST_BYTES = 4096  # of what is tried


def main(argv: Sequence[str] | None = None) -> None:
    """Ends the process: with status 0 where nothing was found, 77 after a fault, 2 where it cannot begin."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Search for a fault in a target."
    )
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: %(default)s)")
    parser.add_argument("--found", type=Path, default=FOUND, help="where to keep it (default: build/fuzz)")
    options = parser.parse_args(argv)
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        parser.error("it needs atheris, which there is for Linux on x86-64: pip install -e '.[dev]'")
    logging.disable(logging.CRITICAL)  # the server tells of everything that it refuses
    with atheris.instrument_imports(include=["gateway"]):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[options.target]
    kept = options.found / options.target
    kept.mkdir(parents=True, exist_ok=True)
    words = options.found / f"{options.target}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    flags = (
        f"-max_total_time={options.seconds}",
        f"-max_len={MOST_BYTES}",
        f"-dict={words}",
        f"-artifact_prefix={options.found}{os.sep}{options.target}-",
        "-print_final_stats=1",
        "-verbosity=1",
    )
    atheris.Setup([sys.argv[0], *flags, str(kept), str(target.folder)], target.check)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()

"""How long does each room take? Runs the `bench_*.py` beside this file under pytest-benchmark.

Processor time (`time.process_time`), as nothing here waits. To ask for it takes 0.6 µs, eight times as long
as `time.perf_counter`; a round lasts ROUND_S or more, of which that is less than a ten-thousandth. Of all
rounds the fastest counts: other work on the machine (caches, clock rates, a neighbour on the same core) makes
a round slower and never faster, and a median moves with it.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.footprint.rig import WITH_US
from benchmarks.record import CHECKOUT

FOLDER = Path(__file__).resolve().parent
ROUND_S = 0.02  # at least
LIMIT_S = 3600.0
TAIL_LINES = 20
PYTEST = (
    *("-m", "pytest", "--quiet"),
    *("-p", "pytest_benchmark.plugin", "-p", "no:cacheprovider"),
    *("-c", str(FOLDER / "pytest.ini"), "--rootdir", str(CHECKOUT)),
)
TIMING = (
    "--benchmark-timer=time.process_time",
    "--benchmark-disable-gc",  # a request makes no cycles, and the gateway collects seldom
    "--benchmark-warmup=off",  # to find out how long a round must be warms up enough
    f"--benchmark-min-time={ROUND_S}",
    "--benchmark-max-time=0",  # so many rounds as were asked for, and no more
)


class NotMeasured(Exception):
    """The text says why, and quotes pytest."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    rounds: int  # of each benchmark; the fastest counts


def measure(plan: Plan) -> dict[str, float]:
    """Microseconds of one thing, by the benchmark's name. Raises NotMeasured or OSError."""
    with tempfile.TemporaryDirectory(prefix="rooms-") as folder:
        kept = Path(folder) / "kept.json"
        run(*TIMING, f"--benchmark-min-rounds={plan.rounds}", f"--benchmark-json={kept}")
        return times(json.loads(kept.read_text(encoding="utf-8")))


def times(kept: Mapping[str, list[dict[str, dict[str, float]]]]) -> dict[str, float]:
    """The same, from what pytest-benchmark has kept."""
    found = {}
    for one in kept["benchmarks"]:
        name = str(one["name"]).removeprefix("bench_")
        found[name] = one["stats"]["min"] / one["extra_info"]["steps"] * 1e6
    return found


def run(*options: str) -> None:
    """Run all benchmarks once, with these options for pytest. Raises NotMeasured or OSError.

    Only pytest-benchmark is loaded of the plugins that are installed: what others do around a function and
    ask of a configuration has no part in this.
    """
    try:
        done = subprocess.run(
            [*WITH_US, *PYTEST, *options, str(FOLDER)],
            cwd=CHECKOUT,
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"the benchmarks took longer than {LIMIT_S:g} s") from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[-TAIL_LINES:]
        raise NotMeasured("\n    ".join([f"pytest ended with status {done.returncode}:", *lines]))

"""What is measured of starts, and what are they held to?"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.footprint.rig import WorkerPlan, configuration, running_workers
from benchmarks.limits.server import running_redis
from benchmarks.startup.starts import Start, import_cpu_s, start
from benchmarks.targets import Row

WORKER = WorkerPlan("steady", 0.0)  # is up before the first start, and answers its probes at once
KEY = "sk-startup"
READY_MS = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters."""

    starts: int  # with each store, and imports


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Row]:
    """All rows. Stores take turns, so that what else the machine does meets both. Raises ServiceFailed.

    tell: is told what begins.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="startup-")))
        urls = stack.enter_context(running_workers([WORKER], folder))
        redis_server = stack.enter_context(running_redis())
        files: dict[str, Path] = {}
        for store, settings in {"memory": {}, "redis": {"store": {"url": redis_server.url}}}.items():
            files[store] = folder / f"{store}.toml"
            files[store].write_text(configuration(urls, 1, KEY, settings), encoding="utf-8")
        tell("imports")
        imports_s = [import_cpu_s() for _ in range(plan.starts)]
        tell("starts")
        starts: dict[str, list[Start]] = {store: [] for store in files}
        for _ in range(plan.starts):
            for store, file in files.items():
                starts[store].append(start(file, folder))
    return [
        Row("imports, CPU, median", statistics.median(imports_s) * 1000, "ms"),
        *(row for store, of in starts.items() for row in _rows(store, of)),
    ]


def _rows(store: str, starts: list[Start]) -> Iterator[Row]:
    walls_ms = [of.wall_s * 1000 for of in starts]
    cpus_ms = [of.cpu_s * 1000 for of in starts]
    yield Row(f"{store} store: exec to ready, median", statistics.median(walls_ms), "ms", at_most=READY_MS)
    yield Row(f"{store} store: exec to ready, longest", max(walls_ms), "ms")
    yield Row(f"{store} store: CPU until ready, median", statistics.median(cpus_ms), "ms")

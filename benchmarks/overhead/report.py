"""How are the results kept and shown? One JSON object, whose last member has a result a line; and tables."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import record, targets
from benchmarks.command import CannotStart
from benchmarks.overhead.contenders import (
    FLOOD,
    LITELLM,
    LITELLM_VERSION,
    NGINX,
    PLAIN,
    QUARTER,
    REDIS,
    STREAM,
    VLLM_ROUTER,
    found,
)
from benchmarks.overhead.results import Result, Results, Spread, rows
from benchmarks.routing.rivals import RIVALS

DISTRIBUTIONS = ("vllm-gateway", "hiredis", "httptools", "msgspec", "starlette", "uvicorn", "uvloop")
VERSION_OPTION = {"nginx": "-v", "redis-server": "-v", "wrk": "-v"}
VERSION = re.compile(r"(?:nginx/|v=|wrk (?:debian/)?)(\d\S*)")
COLUMNS = (  # head, phase, figure, digits
    ("plain µs", PLAIN, "cpu_us", 0),
    ("user", PLAIN, "user_us", 0),
    ("system", PLAIN, "system_us", 0),
    ("Redis", PLAIN, "redis_us", 0),
    ("req/s", PLAIN, "requests_per_s", 0),
    ("chunk µs", STREAM, "cpu_us", 1),
    ("user", STREAM, "user_us", 1),
    ("system", STREAM, "system_us", 1),
    ("busy", STREAM, "busy", 2),
    ("flood /s/core", FLOOD, "chunks_per_core_s", 0),
    ("rate/s", QUARTER, "rate_per_s", 0),
    ("p50 ms", QUARTER, "p50_ms", 2),
    ("p99 ms", QUARTER, "p99_ms", 2),
    ("added p99", QUARTER, "added_p99_ms", 2),
)
RATIOS = (  # head, phase, to whom
    ("plain /vllm-router", PLAIN, VLLM_ROUTER),
    ("plain /nginx", PLAIN, NGINX),
    ("chunk /vllm-router", STREAM, VLLM_ROUTER),
    ("chunk /nginx", STREAM, NGINX),
)


def document(
    parameters: Mapping[str, Any], started_at: datetime, programs: Sequence[str], results: Sequence[Result]
) -> dict[str, Any]:
    """Everything about a run as JSON values. programs: of the system, that were used."""
    measured = {each.contender for each in results}
    others = {name: rival.version for name, rival in RIVALS.items()} | {LITELLM: LITELLM_VERSION}
    return {
        "benchmark": "overhead",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": dict(parameters),
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS)
        | {name: version for name, version in others.items() if name in measured}
        | {name: version_of(name) for name in programs if name in VERSION_OPTION},
        "commit": record.commit(),
        "rows": [row.kept() for row in rows(Results(results))],
        "results": [each.kept() for each in results],
    }


def version_of(program: str) -> str | None:
    """Of one of the system, by what it says of itself; None where that cannot be told."""
    command = [found(program) or program, VERSION_OPTION[program]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = VERSION.search(done.stdout + done.stderr)
    return told and told[1]


def read(file: Path) -> list[Result]:
    """The results of a kept document. Raises CannotStart where it is none."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["benchmark"] != "overhead":
            raise ValueError("another benchmark's")
        return [Result(**each) for each in kept["results"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CannotStart(f"{file} holds no results of this benchmark: {error!r}") from error


def tables(results: Results) -> list[Table]:
    """What was measured, how it compares, and what it is held to."""
    return [_measured(results), _compared(results), targets.table(f"held to: {REDIS}", rows(results))]


def _measured(results: Results) -> Table:
    """Medians over the rounds, under them the lowest and highest. A figure that nobody has is left out."""
    shown = Table(title="what a gateway costs", title_justify="left")
    shown.add_column("contender", style="cyan", no_wrap=True)
    names = results.contenders()
    columns = [each for each in COLUMNS if any(results.spread(name, *each[1:3]) for name in names)]
    for head, _, _, _ in columns:
        shown.add_column(head, justify="right")
    for name in names:
        cells = (cell(results.spread(name, phase, figure), digits) for _, phase, figure, digits in columns)
        shown.add_row(name, *cells)
    return shown


def _compared(results: Results) -> Table:
    """Ratios of processor time, taken within each round."""
    shown = Table(title="ratios, within each round", title_justify="left")
    shown.add_column("contender", style="cyan", no_wrap=True)
    for head, _, _ in RATIOS:
        shown.add_column(head, justify="right")
    for name in results.contenders():
        spreads = [results.ratio(phase, "cpu_us", name, theirs) for _, phase, theirs in RATIOS]
        if any(spread is not None for spread in spreads):
            shown.add_row(name, *(cell(spread, 2) for spread in spreads))
    return shown


def cell(spread: Spread | None, digits: int) -> str:
    """The median, and below it the lowest and the highest where they differ."""
    if spread is None:
        return ""
    middle, lowest, highest = (
        f"{value:.{digits}f}" for value in (spread.median, spread.lowest, spread.highest)
    )
    return middle if lowest == highest else f"{middle}\n{lowest}-{highest}"

"""How is a burst shown and kept? The table for people, the JSON object for later."""

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.burst.records import Plan, Record
from benchmarks.burst.summary import Percentiles, Summary

CHECKOUT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = ("openai", "httpx2", "vllm-gateway")


def table(plan: Plan, summary: Summary) -> Table:
    """Times in seconds, time per output token in milliseconds; a dash is what was not measured."""
    mode = "streamed" if plan.stream else "not streamed"
    rows = Table(title=f"{plan.endpoint}, {mode}, {plan.model}", show_header=False, title_justify="left")
    rows.add_column(style="cyan")
    rows.add_column(justify="right")
    rows.add_row("ok / failed", f"{summary.ok} / {summary.failed}")
    rows.add_row("wall", f"{summary.wall_s:.2f} s")
    rows.add_row("requests", f"{summary.requests_per_s:.2f} /s")
    rows.add_row("output tokens", f"{summary.output_tokens_per_s:.1f} /s")
    rows.add_row("tokens in / out", f"{summary.prompt_tokens} / {summary.output_tokens}")
    rows.add_row("time to first token p50 / p90 / p99", _times(summary.ttft_s, 1, "s"))
    rows.add_row("time per output token p50 / p90 / p99", _times(summary.tpot_s, 1000, "ms"))
    rows.add_row("end to end p50 / p90 / p99", _times(summary.latency_s, 1, "s"))
    if summary.retries:
        rows.add_row("retries by the SDK", str(summary.retries))
    if summary.without_usage:
        rows.add_row("answers without usage (tokens not counted)", str(summary.without_usage))
    return rows


def _times(times: Percentiles | None, factor: float, unit: str) -> str:
    if times is None:
        return "–"  # noqa: RUF001
    return " / ".join(f"{value * factor:.3f}" for value in (times.p50, times.p90, times.p99)) + f" {unit}"


def error_lines(summary: Summary) -> list[str]:
    """One line a kind of failure: how often, and the first message."""
    return [f"{kind}: {count}  ({summary.error_example[kind]})" for kind, count in summary.errors.items()]


def document(plan: Plan, started_at: datetime, summary: Summary, records: Sequence[Record]) -> dict[str, Any]:
    """Everything about the burst as JSON values, every request's record included."""
    return {
        "benchmark": "burst",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": asdict(plan),
        "machine": machine(),
        "versions": versions(),
        "commit": commit(CHECKOUT),
        "summary": asdict(summary),
        "records": [asdict(record) for record in records],
    }


def prepare(path: Path) -> None:
    """Make sure, before anything is measured, that a file can be written there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("a").close()


def write(path: Path, content: dict[str, Any]) -> None:
    """One record a line, so that results can be read and compared by line."""
    records = ",\n  ".join(json.dumps(record) for record in content["records"])
    head = json.dumps({**content, "records": []}, indent=1).removesuffix("[]\n}")
    path.write_text(f"{head}[\n  {records}\n ]\n}}\n", encoding="utf-8")


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


def versions() -> dict[str, str]:
    """Of Python and of what the client is made of, as far as it is installed."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def commit(checkout: Path) -> dict[str, Any] | None:
    """Which state of this repository the client is; None outside a git checkout."""
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

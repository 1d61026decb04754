"""How is a burst shown and kept? The table for people, the JSON object for later."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.table import Table

from benchmarks import record
from benchmarks.burst.records import Plan, Record
from benchmarks.burst.summary import Percentiles, Summary

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
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS),
        "commit": record.commit(),
        "summary": asdict(summary),
        "records": [asdict(of_request) for of_request in records],
    }

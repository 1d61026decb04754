"""The command line of the soak: `python -m benchmarks.soak --help`."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import redis
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import record
from benchmarks.command import FILE, INTERRUPTED, CannotStart, ended_by_signals, prepare
from benchmarks.soak import charts
from benchmarks.soak.course import Course, Plan, Stage, call_and_look, course
from benchmarks.soak.trend import TooShort, Trend, trends
from deploy.services import ServiceFailed

DEFAULTS = Plan()
DISTRIBUTIONS = ("vllm-gateway", "hiredis", "httptools", "openai", "redis", "uvicorn", "uvloop")


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--seconds", default=DEFAULTS.seconds, type=click.FloatRange(1))
@click.option("--every-s", default=DEFAULTS.every_s, type=click.FloatRange(0.1), help="Between two looks.")
@click.option("--per-s", default=DEFAULTS.per_s, type=click.FloatRange(1), help="Calls a second.")
@click.option("--seed", default=DEFAULTS.seed, type=click.IntRange(0), help="Of the callers.")
@click.option("--plot", type=FILE, help="Draw it here, as PNG.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, trends and looks here.")
@click.pass_context
def main(context: click.Context, /, plot: Path | None, json_file: Path | None, **options: Any) -> None:
    """Call a gateway of two processes for hours, as users do, and watch what it holds.

    Exit status: 0 if all is flat, 1 if something grows, 2 if it could not be told. Linux only.
    """
    for file in (plot, json_file):
        if file is not None:
            prepare(file)
    plan = Plan(**options)
    started_at = datetime.now(UTC)
    click.echo(f"calls for {plan.seconds:g} s", err=True)
    try:
        with ended_by_signals():
            seen, found = watched(plan)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    Console().print(table(found))
    if plot is not None:
        charts.draw(seen.at_s, seen.looks, plot)
    if json_file is not None:
        record.write(json_file, document(plan, started_at, seen, found))
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(each.is_growing for each in found) else 0)


def watched(plan: Plan) -> tuple[Course, list[Trend]]:
    """Raises CannotStart."""
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            seen = course(plan, Path(folder), _run)
        return seen, trends(seen.at_s, seen.looks)
    except (ServiceFailed, OSError, TooShort) as error:
        raise CannotStart(str(error)) from error


def _run(seen: Course, stage: Stage) -> None:
    """Raises ServiceFailed, or TimeoutError if callers do not come to an end."""
    try:
        uvloop.run(call_and_look(seen, stage))
    except ExceptionGroup as failures:
        if failures.split((ServiceFailed, LookupError, redis.RedisError))[1] is not None:
            raise
        raise ServiceFailed(str(failures.exceptions[0])) from failures


def table(found: Sequence[Trend]) -> Table:
    """A series a row."""
    shown = Table(title="Held by the gateway, over the second half", title_justify="left")
    shown.add_column("what", style="cyan")
    for column in ("mean", "growth", "rise of the peak", "flat up to"):
        shown.add_column(column, justify="right")
    shown.add_column("verdict")
    for each in found:
        verdict = "[red]growing" if each.is_growing else "[green]flat"
        figures = (each.mean, each.growth, each.rise, each.bound)
        shown.add_row(each.name, *(f"{figure:.2f}" for figure in figures), verdict)
    return shown


def document(plan: Plan, started_at: datetime, seen: Course, found: Sequence[Trend]) -> dict[str, Any]:
    """Everything about a run as JSON values."""
    return {
        "benchmark": "soak",
        "started_at": started_at.isoformat(timespec="seconds"),
        "parameters": asdict(plan),
        "machine": record.machine(),
        "versions": record.versions(DISTRIBUTIONS) | {"redis-server": seen.redis_version},
        "commit": record.commit(),
        "calls": dict(seen.outcomes.most_common()),
        "trends": [each.kept() for each in found],
        "looks": [{"at_s": round(at, 1), **look} for at, look in zip(seen.at_s, seen.looks, strict=True)],
    }


if __name__ == "__main__":
    main()

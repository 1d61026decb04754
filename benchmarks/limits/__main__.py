"""The command line of the cost of limits: `python -m benchmarks.limits --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import uvloop
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import FILE, CannotStart, prepare
from benchmarks.limits import report
from benchmarks.limits.load import LimitReached
from benchmarks.limits.measurements import Plan, Round, measure, rows
from benchmarks.limits.server import running_redis
from deploy.services import ServiceFailed
from gateway.errors import StoreUnavailable

INTERRUPTED = 130  # the exit status that shells give to Ctrl-C


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--callers", default=64, type=click.IntRange(1), help="At once, for the highest rate.")
@click.option("--tenants", default=8, type=click.IntRange(1), help="Of whom the callers are.")
@click.option("--per-s", default=4000, type=click.IntRange(1), help="Requests of a busy process a second.")
@click.option("--seconds", default=2.0, type=click.FloatRange(0.01), help="Of each load.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="Of which the medians count.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, rounds and rows here.")
@click.pass_context
def main(
    context: click.Context,
    /,
    callers: int,
    tenants: int,
    per_s: int,
    seconds: float,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Start a redis-server on this machine, and measure what an admission and its settlement cost.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    plan = Plan(callers, tenants, per_s, seconds, rounds)
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    click.echo(f"measuring for {plan.duration_s:.0f} s", err=True)
    try:
        redis_server, figures = measured(plan)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    found = rows(plan, figures)
    Console().print(targets.table("an admission and its settlement", found))
    if json_file is not None:
        record.write(json_file, report.document(asdict(plan), started_at, redis_server, figures, found))
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for row in found) else 0)


def measured(plan: Plan) -> tuple[str, list[Round]]:
    """The version of Redis, and the figures of all rounds. Raises CannotStart."""
    try:
        with running_redis() as server:
            return server.version(), uvloop.run(measure(plan, server))
    except (ServiceFailed, OSError) as error:
        raise CannotStart(str(error)) from error
    except ExceptionGroup as failures:
        if failures.split((StoreUnavailable, LimitReached))[1] is not None:
            raise
        raise CannotStart(f"a store did not do its work: {failures.exceptions[0]}") from failures


if __name__ == "__main__":
    main()

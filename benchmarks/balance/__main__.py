"""The command line of the balance: `python -m benchmarks.balance --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import record, targets
from benchmarks.balance.callers import NotAnswered
from benchmarks.balance.measurements import OURS, Plan, Taken, measure, rows, scrape_rows
from benchmarks.balance.stand import WAYS, Way
from benchmarks.command import (
    FILE,
    INTERRUPTED,
    SPARE_FILES,
    CannotStart,
    allow_open_files,
    ended_by_signals,
    prepare,
)
from benchmarks.targets import Row
from deploy.services import ServiceFailed

DISTRIBUTIONS = ("vllm-gateway", "msgspec", "prometheus-client", "uvicorn", "uvloop")
COUNT = click.IntRange(2)


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option(
    "--processes", multiple=True, default=(2, 4, 8), type=COUNT, help="Behind one port; repeatable."
)
@click.option("--streams", multiple=True, default=(64, 256), type=COUNT, help="Open at once; repeatable.")
@click.option("--way", "ways", multiple=True, default=(OURS,), type=click.Choice(WAYS), help="Repeatable.")
@click.option("--visits", default=1000, type=click.IntRange(1), help="Connections, for the cost of one.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Of which the worst counts.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, rows and rounds here.")
@click.pass_context
def main(
    context: click.Context,
    /,
    processes: tuple[int, ...],
    streams: tuple[int, ...],
    ways: tuple[Way, ...],
    visits: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Start several processes behind one port, and see where long streams end up.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    plan = Plan(processes, streams, ways, visits, rounds)
    allow_open_files(3 * max(streams) + SPARE_FILES, "--streams")
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    try:
        with ended_by_signals():
            taken, found = measured(plan)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    Console().print(targets.table("several processes", found))
    if json_file is not None:
        document = {
            "benchmark": "balance",
            "started_at": started_at.isoformat(timespec="seconds"),
            "parameters": asdict(plan),
            "machine": record.machine(),
            "versions": record.versions(DISTRIBUTIONS),
            "commit": record.commit(),
            "rows": [row.kept() for row in found],
            "orders": [one.kept() for one in taken],
        }
        record.write(json_file, document)
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for row in found) else 0)


def measured(plan: Plan) -> tuple[list[Taken], list[Row]]:
    """Raises CannotStart for what could not be measured."""
    taken: list[Taken] = []
    found: list[Row] = []
    try:
        for one in measure(plan):
            click.echo(f"measured: {one.processes} processes, {one.way}: {one.order}", err=True)
            taken.append(one)
            found += rows(one)
        return taken, found + scrape_rows(plan)
    except (ServiceFailed, NotAnswered, OSError) as error:
        raise CannotStart(str(error)) from error


if __name__ == "__main__":
    main()

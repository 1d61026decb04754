"""The command line of the rooms: `python -m benchmarks.rooms --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import record
from benchmarks.command import FILE, INTERRUPTED, CannotStart, ended_by_signals, prepare
from benchmarks.rooms import budget
from benchmarks.rooms.suite import NotMeasured, Plan, measure

DISTRIBUTIONS = ("vllm-gateway", "httptools", "msgspec", "pytest-benchmark", "uvicorn", "uvloop")


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--rounds", default=30, type=click.IntRange(1), help="Of each room; the fastest counts.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine and rows here.")
@click.pass_context
def main(context: click.Context, /, rounds: int, json_file: Path | None) -> None:
    """Measure each room that a request passes by itself, and the whole gateway, all without sockets.

    Exit status: 0 if all was measured, 2 if it could not be, or the results could not be kept. Linux only.
    """
    plan = Plan(rounds)
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    try:
        with ended_by_signals():
            found = budget.lines(measure(plan))
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    except (NotMeasured, OSError) as error:
        raise CannotStart(str(error)) from error
    console = Console()
    for table in budget.tables(found):
        console.print(table)
    if json_file is not None:
        document = {
            "benchmark": "rooms",
            "started_at": started_at.isoformat(timespec="seconds"),
            "parameters": asdict(plan),
            "machine": record.machine(),
            "versions": record.versions(DISTRIBUTIONS),
            "commit": record.commit(),
            "rows": [line.kept() for line in found],
        }
        record.write(json_file, document)
        click.echo(f"kept in {json_file}")


if __name__ == "__main__":
    main()

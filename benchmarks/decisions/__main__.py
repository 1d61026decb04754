"""The command line of the cost of decisions: `python -m benchmarks.decisions --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import FILE, prepare
from benchmarks.decisions.measurements import Plan, rows

DISTRIBUTIONS = ("vllm-gateway", "msgspec")


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--workers", default=16, type=click.IntRange(1), help="To choose from.")
@click.option("--waiting", default=1000, type=click.IntRange(1), help="Requests in the queue.")
@click.option("--decisions", default=5000, type=click.IntRange(1), help="In a round.")
@click.option("--rounds", default=7, type=click.IntRange(1), help="Of which the fastest counts.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine and rows here.")
@click.pass_context
def main(
    context: click.Context,
    /,
    workers: int,
    waiting: int,
    decisions: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Measure what it costs a process to choose a worker, and to take a request through the queue.

    Exit status: 0 if every target is met, 1 if one is not, 2 if the results could not be kept.
    """
    plan = Plan(workers, waiting, decisions, rounds)
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    found = rows(plan)
    Console().print(targets.table("a decision", found))
    if json_file is not None:
        document = {
            "benchmark": "decisions",
            "started_at": started_at.isoformat(timespec="seconds"),
            "parameters": asdict(plan),
            "machine": record.machine(),
            "versions": record.versions(DISTRIBUTIONS),
            "commit": record.commit(),
            "rows": [row.kept() for row in found],
        }
        record.write(json_file, document)
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for row in found) else 0)


if __name__ == "__main__":
    main()

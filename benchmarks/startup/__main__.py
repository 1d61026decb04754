"""The command line of the start: `python -m benchmarks.startup --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import FILE, INTERRUPTED, CannotStart, ended_by_signals, prepare
from benchmarks.startup.measurements import Plan, measure
from deploy.services import ServiceFailed

DISTRIBUTIONS = (
    "vllm-gateway",
    "click",
    "httptools",
    "msgspec",
    "prometheus-client",
    "pydantic",
    "redis",
    "starlette",
    "uvicorn",
    "uvloop",
)


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--starts", default=10, type=click.IntRange(1), help="With each store.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine and rows here.")
@click.pass_context
def main(context: click.Context, /, starts: int, json_file: Path | None) -> None:
    """Start gateways on this machine, one after the other, and measure how long each takes to be ready.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    plan = Plan(starts)
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    try:
        with ended_by_signals():
            found = measure(plan, lambda what: click.echo(f"measuring: {what}", err=True))
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    except (ServiceFailed, OSError) as error:
        raise CannotStart(str(error)) from error
    Console().print(targets.table("a start", found))
    if json_file is not None:
        document = {
            "benchmark": "startup",
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

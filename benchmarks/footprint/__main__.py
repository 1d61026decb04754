"""The command line of the footprint: `python -m benchmarks.footprint --help`."""

import asyncio
import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx
import uvloop
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import (
    FILE,
    INTERRUPTED,
    SPARE_FILES,
    CannotStart,
    allow_open_files,
    ended_by_signals,
    prepare,
)
from benchmarks.footprint import report
from benchmarks.footprint.measurements import Measurement, Plan, measurements
from benchmarks.footprint.rig import Rig, running_rig
from benchmarks.footprint.streams import RequestFailed
from benchmarks.targets import Row
from deploy.services import ServiceFailed

LIMIT_S = 300.0  # for one measurement, whose processes have started
SMALLEST_BODY_BYTES = 1000


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--connections", default=15_000, type=click.IntRange(1), help="Idle, for the memory of one.")
@click.option("--streams", default=5000, type=click.IntRange(1), help="Open at once, for the memory of one.")
@click.option("--waiting", default=3000, type=click.IntRange(1), help="In the queue, for the memory of one.")
@click.option("--waiting-large", default=1000, type=click.IntRange(1), help="The same, with large bodies.")
@click.option("--steady-streams", default=50, type=click.IntRange(1), help="Timed beside the uploads.")
@click.option("--uploads", default=5, type=click.IntRange(1), help="Large bodies, one after the other.")
@click.option("--body-bytes", default=20_000_000, type=click.IntRange(SMALLEST_BODY_BYTES), help="Of each.")
@click.option("--requests", default=1000, type=click.IntRange(1), help="Of the burst.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine and rows here.")
@click.pass_context
def main(context: click.Context, /, json_file: Path | None, **parameters: int) -> None:
    """Start a gateway on this machine before workers that cost nothing, and measure what one process costs.

    Exit status: 0 if every target is met, 1 if one is not, 2 if something could not be measured. Linux only.
    """
    plan = Plan(**parameters)
    allow_open_files(plan.open_files + SPARE_FILES, "--connections, --streams, --waiting and --requests")
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    try:
        with ended_by_signals():
            rows = measure(plan)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    Console().print(targets.table("one gateway process", rows))
    if json_file is not None:
        record.write(json_file, report.document(asdict(plan), started_at, rows))
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for row in rows) else 0)


def measure(plan: Plan) -> list[Row]:
    """All there is. Raises CannotStart for what could not be measured."""
    rows: list[Row] = []
    for measurement in measurements(plan):
        click.echo(f"measuring: {measurement.question}", err=True)
        rows += figures(measurement)
    return rows


def figures(measurement: Measurement) -> list[Row]:
    """Of one measurement. Raises CannotStart."""
    try:
        with running_rig(measurement.workers, measurement.max_concurrency, measurement.settings) as rig:
            return uvloop.run(_measured(measurement, rig))
    except (ServiceFailed, OSError) as error:
        raise CannotStart(f"{measurement.question}: {error}") from error


async def _measured(measurement: Measurement, rig: Rig) -> list[Row]:
    try:
        async with asyncio.timeout(LIMIT_S):
            await rig.reaches("gateway_worker_up", len(measurement.workers), limit_s=math.inf)
            return await measurement.run(rig)
    except TimeoutError as error:
        raise ServiceFailed(f"took longer than {LIMIT_S:g} s. {rig.gateway.tail()}") from error
    except (RequestFailed, LookupError, OSError, httpx.HTTPError) as error:
        raise ServiceFailed(f"{error}. {rig.gateway.tail()}") from error


if __name__ == "__main__":
    main()

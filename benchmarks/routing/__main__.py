"""The command line of the routing benchmark: `python -m benchmarks.routing --help`."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import command, record
from benchmarks.command import FILE, CannotStart
from benchmarks.routing import report
from benchmarks.routing.arms import ARMS
from benchmarks.routing.campaign import Campaign, capacity_of, played, prepare
from benchmarks.routing.results import Run
from benchmarks.routing.scenarios import BUSY, SCENARIOS, Setting
from benchmarks.routing.workers import MODEL, Engines

INTERRUPTED = 130  # the exit status that shells give to Ctrl-C
FOLDER = click.Path(file_okay=False, path_type=Path)
KEPT = click.Path(exists=True, dir_okay=False, path_type=Path)
ABOVE_0 = click.FloatRange(0, min_open=True)
WIDTH = 160  # columns of tables that nobody looks at on a terminal


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not like 1,2,3") from error


@click.group(context_settings={"show_default": True, "max_content_width": 110})
def main() -> None:
    """The gateway's policies and other routers, before the same workers and under the same loads."""


@main.command("run")
@click.option(
    "--scenario", "scenarios", multiple=True, type=click.Choice(list(SCENARIOS)), help="Left out: all."
)
@click.option(
    "--arm", "arms", multiple=True, type=click.Choice(list(ARMS)), help="Left out: each scenario's own."
)
@click.option("--seeds", default="1,2,3", callback=_numbers, help="Of the loads.")
@click.option("--seconds", type=ABOVE_0, help="Of each load after the warm-up. Left out: the scenario's own.")
@click.option("--warm-up", "warm_up_s", default=5.0, type=click.FloatRange(0), help="Seconds, not counted.")
@click.option("--workers", "count", default=4, type=click.IntRange(1), help="Simulated ones.")
@click.option("--worker", "urls", multiple=True, help="URL of one that runs, instead. Repeat it for several.")
@click.option("--model", default=MODEL, help="That workers serve.")
@click.option(
    "--long-prefill-token-threshold", "threshold", default=1024, type=click.IntRange(0), help="0: none."
)
@click.option("--speed", default=1.0, type=ABOVE_0, help="Virtual seconds of simulated workers in a second.")
@click.option(
    "--rate", type=ABOVE_0, help=f"Mixed load, requests/s: {BUSY} of capacity. Left out: it is measured."
)
@click.option(
    "--traces", type=FOLDER, help="Folder of the public traces. Left out: loads that are like them."
)
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, rows and runs here.")
@click.pass_context
def run_all(context: click.Context, /, json_file: Path | None, **flags: Any) -> None:
    """Play the loads, and hold the figures to the targets.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    campaign = _campaign(**flags)
    if json_file is not None:
        command.prepare(json_file)
    started_at = datetime.now(UTC)
    runs: list[Run] = []
    capacity_rps = None
    try:
        prepare(campaign)
        capacity_rps = capacity_of(campaign)
        if capacity_rps is not None:
            _say(f"capacity: {capacity_rps:.1f} requests/s of the mixed load")
        for run in played(campaign, capacity_rps, _say):
            runs.append(run)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    finally:  # also what there is of a campaign that could not go on
        if json_file is not None and runs:
            record.write(json_file, report.document(campaign.parameters(), started_at, capacity_rps, runs))
            _say(f"kept in {json_file}")
    _show(runs)
    context.exit(1 if any(row.met is False for _, rows in report.judged(runs) for row in rows) else 0)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _campaign(
    scenarios: Sequence[str],
    count: int,
    urls: Sequence[str],
    model: str,
    threshold: int,
    speed: float,
    **flags: Any,
) -> Campaign:
    """Raises click.UsageError where options contradict each other."""
    engines = Engines(count, speed, threshold, tuple(url.rstrip("/") for url in urls), model)
    if urls and speed != 1:
        raise click.UsageError("workers that run already have their own --speed")
    if urls and "kill" in scenarios:
        raise click.UsageError("workers that run already are not killed")
    chosen = scenarios or [name for name in SCENARIOS if not (urls and name == "kill")]
    setting = Setting(math.nan, flags["seconds"], flags["warm_up_s"], flags["traces"])
    return Campaign(chosen, flags["arms"], flags["seeds"], flags["rate"], engines, setting)


@main.command()
@click.argument("file", type=KEPT)
def table(file: Path) -> None:
    """Show what a FILE of `run --json` holds."""
    _show(report.read(file))


@main.command()
@click.argument("file", type=KEPT)
@click.option("--out", "folder", default=Path(), type=FOLDER, help="Where the PNGs go.")
def plot(file: Path, folder: Path) -> None:
    """Draw what a FILE of `run --json` holds. Needs matplotlib (pip install -e '.[bench]')."""
    from benchmarks.routing import charts  # here alone matplotlib is needed

    runs = report.by_scenario(report.read(file))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = charts.draw(runs, folder)
    except OSError as error:
        raise CannotStart(f"cannot write to {folder}: {error.strerror}") from error
    for path in made:
        click.echo(f"drawn in {path}")


def _show(runs: Sequence[Run]) -> None:
    console = Console()
    wide = console if console.is_terminal else Console(width=WIDTH)
    for shown in report.tables(runs):
        wide.print(shown)


if __name__ == "__main__":
    main()

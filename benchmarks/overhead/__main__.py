"""The command line of what a gateway costs: `python -m benchmarks.overhead --help`."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import command, record
from benchmarks.command import FILE, SPARE_FILES, CannotStart, allow_open_files
from benchmarks.overhead import report
from benchmarks.overhead.campaign import Campaign, measured, prepare, programs
from benchmarks.overhead.contenders import CONTENDERS, FLOOD, MOST, PHASES, PLAIN, QUARTER
from benchmarks.overhead.phases import Plan
from benchmarks.overhead.processors import parsed
from benchmarks.overhead.results import Result, Results, rows

INTERRUPTED = 130  # the exit status that shells give to Ctrl-C
FOLDER = click.Path(file_okay=False, path_type=Path)
KEPT = click.Path(exists=True, dir_okay=False, path_type=Path)
WIDTH = 180  # columns of tables that nobody looks at on a terminal


def _processors(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> frozenset[int] | None:
    if value is None:
        return None
    try:
        chosen = parsed(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not like 0,2-3") from error
    if unknown := chosen - os.sched_getaffinity(0):
        raise click.BadParameter(f"we may not run on {sorted(unknown)}")
    return chosen


@click.group(context_settings={"show_default": True, "max_content_width": 110})
def main() -> None:
    """Processor time of gateways for a request and for a streamed chunk, in interleaved rounds."""


@main.command("run")
@click.option(
    "--contender", "names", multiple=True, type=click.Choice(list(CONTENDERS)), help="Left out: all."
)
@click.option("--phase", "phases", multiple=True, type=click.Choice(PHASES), help="Left out: all.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="Of which the medians count.")
@click.option("--seconds", default=4, type=click.IntRange(1), help="Of each load.")
@click.option("--flood-tokens", default=512, type=click.IntRange(1), help="Of each stream of the flood.")
@click.option(
    "--gateway-processors", callback=_processors, help="As for taskset. Left out: the first there is."
)
@click.option(
    "--load-processors", callback=_processors, help="Of workers, callers, Redis. Left out: the second."
)
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, rows and results here.")
@click.pass_context
def run_all(context: click.Context, /, json_file: Path | None, **flags: Any) -> None:
    """Measure the gateways one after the other, forwards and backwards, and hold ours to its targets.

    Exit status: 0 if every target is met, 1 if one is not, 2 if somebody could not be measured. Linux only.
    """
    campaign = _campaign(**flags)
    if json_file is not None:
        command.prepare(json_file)
    if FLOOD in campaign.phases:  # the gateway inherits the limit, and has both sides of each stream
        allow_open_files(2 * MOST[FLOOD] + SPARE_FILES, "the load by other --phase than flood")
    started_at = datetime.now(UTC)
    results: list[Result] = []
    try:
        prepare(campaign, _say)
        for result in measured(campaign, _say):
            results.append(result)
            if result.problem is not None:
                _say(f"  not valid: {result.problem}")
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    finally:  # also what there is of a campaign that could not go on
        if json_file is not None and results:
            kept = report.document(campaign.parameters(), started_at, programs(campaign), results)
            record.write(json_file, kept)
            _say(f"kept in {json_file}")
    context.exit(_show(results))


def _campaign(
    names: Sequence[str],
    phases: Sequence[str],
    rounds: int,
    gateway_processors: frozenset[int] | None,
    load_processors: frozenset[int] | None,
    **plan: int,
) -> Campaign:
    """Raises click.UsageError or CannotStart."""
    if QUARTER in phases and PLAIN not in phases:
        raise click.UsageError("a quarter of what plain has found: add --phase plain")
    gateways, loads = _apart(gateway_processors, load_processors)
    return Campaign(names or list(CONTENDERS), phases or PHASES, rounds, Plan(**plan), gateways, loads)


def _apart(
    gateways: frozenset[int] | None, loads: frozenset[int] | None
) -> tuple[frozenset[int], frozenset[int]]:
    """The processors of either side. Raises CannotStart where they cannot be told apart."""
    free = sorted(os.sched_getaffinity(0) - (gateways or frozenset()) - (loads or frozenset()))
    if len(free) < (gateways is None) + (loads is None):
        raise CannotStart("two processors are needed: one for the gateway, one for those who call it")
    gateways = gateways or frozenset(free[:1])
    loads = loads or frozenset(sorted(set(free) - gateways)[:1])
    if gateways & loads:
        raise CannotStart("gateway and load need processors of their own")
    return gateways, loads


def _say(text: str) -> None:
    click.echo(text, err=True)


def _show(results: Sequence[Result]) -> int:
    """Returns the exit status."""
    found = Results(results)
    console = Console()
    wide = console if console.is_terminal else Console(width=WIDTH)
    for shown in report.tables(found):
        wide.print(shown)
    for problem in found.problems():
        click.echo(f"not valid: {problem}")
    if found.problems():
        return CannotStart.exit_code
    return 1 if any(row.met is False for row in rows(found)) else 0


@main.command()
@click.argument("file", type=KEPT)
def table(file: Path) -> None:
    """Show what a FILE of `run --json` holds."""
    _show(report.read(file))


@main.command()
@click.argument("file", type=KEPT)
@click.option("--out", "folder", default=Path(), type=FOLDER, help="Where the PNG goes.")
def plot(file: Path, folder: Path) -> None:
    """Draw what a FILE of `run --json` holds. Needs matplotlib (pip install -e '.[bench]')."""
    from benchmarks.overhead import charts  # here alone matplotlib is needed

    results = Results(report.read(file))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = charts.draw(results, folder)
    except OSError as error:
        raise CannotStart(f"cannot write to {folder}: {error.strerror}") from error
    click.echo(f"drawn in {made}")


if __name__ == "__main__":
    main()

"""The command line of the chaos run: `python -m benchmarks.chaos --help`."""

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx
import uvloop
from rich.console import Console

from benchmarks import record, targets
from benchmarks.chaos import report
from benchmarks.chaos.course import run
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.plan import Plan, fast
from benchmarks.command import FILE, INTERRUPTED, CannotStart, ended_by_signals, prepare
from deploy.services import ServiceFailed

FOLDER = click.Path(file_okay=False, path_type=Path)
UNMEASURED = (ServiceFailed, OSError, httpx.HTTPError)


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--seconds", type=click.FloatRange(10), help="In which callers call.  [default: 600]")
@click.option("--seed", default=1, type=click.IntRange(0), help="Of callers, and of what goes wrong.")
@click.option("--fast", "is_fast", is_flag=True, help="A smoke test: all faults within 12 s, few calls.")
@click.option("--logs", type=FOLDER, help="Keep all logs here.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, counts and findings here.")
@click.pass_context
def main(
    context: click.Context,
    /,
    seconds: float | None,
    seed: int,
    is_fast: bool,
    logs: Path | None,
    json_file: Path | None,
) -> None:
    """Start two replicas of the gateway, three workers and a redis-server on this machine, call them, kill,
    stop and cut off what there is, and look in all logs for a promise that was not kept.

    Exit status: 0 if all were, 1 if one was not, 2 if it could not be tried. Linux only.
    """
    if json_file is not None:
        prepare(json_file)
    plan = fast(seed) if is_fast else Plan(seed=seed)
    plan = plan if seconds is None else replace(plan, seconds=seconds)
    started_at = datetime.now(UTC)
    click.echo(f"callers call for {plan.seconds:g} s", err=True)
    try:
        with ended_by_signals():
            found, redis_version = tried(plan, logs)
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    findings = report.judge(found)
    Console().print(targets.table(f"Chaos, seed {seed}", report.rows(found, findings)))
    for finding in findings:
        for text in finding.texts[: report.MOST_KEPT]:
            click.echo(f"{finding.rule}: {text}")
    if json_file is not None:
        record.write(json_file, report.document(found, findings, started_at, redis_version))
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(finding.texts for finding in findings) else 0)


def tried(plan: Plan, logs: Path | None) -> tuple[Evidence, str]:
    """Raises CannotStart."""
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-") if logs is None else nullcontext(logs) as folder:
            return uvloop.run(run(plan, Path(folder)))
    except UNMEASURED as error:
        raise CannotStart(str(error)) from error
    except ExceptionGroup as failures:
        if failures.split(UNMEASURED)[1] is not None:
            raise
        raise CannotStart(str(failures.exceptions[0])) from failures


if __name__ == "__main__":
    main()

"""The command line: plan a fleet of vLLM workers, or run it."""

import asyncio
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click
from rich.console import Console

from workers.launch import default_logs, prepare
from workers.plan import plan_fleet
from workers.problems import Refused
from workers.process import Launch, log_tail
from workers.progress import StartProgress
from workers.report import report
from workers.supervisor import StartFailed, Supervisor

EXIT_NEVER_HEALTHY = 1
EXIT_REFUSED = 2
SHOWN_LOG_LINES = 30

P = ParamSpec("P")

fleet_option = click.option(
    "--fleet",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The fleet file (TOML); deploy/fleet.*.toml are examples.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Plan and run the vLLM workers that the gateway stands in front of.

    A fleet file lists workers: model, GPUs, port and limits of each.
    """


def _refusals_exit_2(command: Callable[P, None]) -> Callable[P, None]:
    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Refused as refused:
            for problem in refused.problems:
                click.echo(str(problem), err=True)
            count = len(refused.problems)
            click.echo(f"{count} problem{'s' if count > 1 else ''}; nothing was started", err=True)
            raise SystemExit(EXIT_REFUSED) from None

    return guarded


@main.command()
@fleet_option
@_refusals_exit_2
def plan(fleet: Path) -> None:
    """Show what `up` would run, and start nothing.

    For each worker: how its memory divides, how many requests fit, and the exact command with its
    environment, ready to paste into a shell. Exits 2 with every problem of the file if the fleet cannot run.
    """
    click.echo(report(plan_fleet(fleet)), nl=False)


@main.command()
@fleet_option
@click.option(
    "--logs",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where each worker's log goes  [default: vllm-gateway/logs in $XDG_STATE_HOME or ~/.local/state]",
)
@_refusals_exit_2
def up(fleet: Path, logs: Path | None) -> None:
    """Start the workers, watch them, and stop them with Ctrl-C or SIGTERM.

    Every worker must become healthy once, or all are stopped and the end of its log is shown (exit 1). After
    that one that dies is started again, after 1 s, 2 s, 4 s … at most 60 s. On the first signal running
    requests may finish (shutdown_timeout_s); a second signal ends everything at once. Exit 0 on a stop by
    signal, 2 if the fleet cannot run.
    """
    launches = prepare(plan_fleet(fleet), logs or default_logs(os.environ), os.environ)
    try:
        asyncio.run(_run(launches, Console()))
    except StartFailed as failed:
        _show_failure(failed)
        raise SystemExit(EXIT_NEVER_HEALTHY) from None


async def _run(launches: list[Launch], console: Console) -> None:
    with StartProgress(console) as progress:
        await Supervisor(launches, progress).run()


def _show_failure(failed: StartFailed) -> None:
    for line in log_tail(failed.launch.log, SHOWN_LOG_LINES):
        click.echo(f"  {line}", err=True)
    click.echo(f"{failed}; above is the end of {failed.launch.log}", err=True)


if __name__ == "__main__":
    main()

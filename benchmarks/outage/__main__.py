"""The command line of the outages: `python -m benchmarks.outage --help`."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
import uvloop
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import FILE, CannotStart, prepare
from benchmarks.limits.server import RedisServer, running_redis
from benchmarks.outage import exact, freeze, kill, report, sdk
from benchmarks.outage.rig import Stand, stand
from benchmarks.targets import Row
from deploy.services import ServiceFailed

SPARE_S = 180.0  # for programs to start and end on a busy machine
INTERRUPTED = 130  # the exit status that shells give to Ctrl-C

AnyPlan = freeze.Plan | kill.Plan | sdk.Plan | exact.Plan


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question, which is answered with programs that no other scenario has used."""

    question: str
    interval_s: float  # between two tokens of the worker
    plan: AnyPlan
    run: Callable[[Stand], Coroutine[Any, Any, list[Row]]]


def scenarios(
    freezing: freeze.Plan, killing: kill.Plan, calling: sdk.Plan, counting: exact.Plan
) -> dict[str, Scenario]:
    """By the name for --only, in the order in which they are run."""
    return {
        "freeze": Scenario(
            "Redis freezes under load and goes on",
            freeze.INTERVAL_S,
            freezing,
            lambda stand: freeze.measure(stand, freezing),
        ),
        "kill": Scenario(
            "a gateway is killed with streams under way",
            kill.INTERVAL_S,
            killing,
            lambda stand: kill.measure(stand, killing),
        ),
        "sdk": Scenario("the SDK meets a limit", 0.0, calling, lambda stand: sdk.measure(stand, calling)),
        "exact": Scenario(
            "replicas share a limit",
            exact.INTERVAL_S,
            counting,
            lambda stand: exact.measure(stand, counting),
        ),
    }


SCENARIOS = scenarios(freeze.Plan(), kill.Plan(), sdk.Plan(), exact.Plan())


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="Repeat it for several.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine and rows here.")
@click.pass_context
def main(context: click.Context, /, only: tuple[str, ...], json_file: Path | None) -> None:
    """Start gateways and a redis-server on this machine, have them fail, and see what callers see of it.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    if json_file is not None:
        prepare(json_file)
    chosen = {name: scenario for name, scenario in SCENARIOS.items() if not only or name in only}
    started_at = datetime.now(UTC)
    found: dict[str, list[Row]] = {}
    redis_server = ""
    try:
        for name, scenario in chosen.items():
            click.echo(f"{scenario.question}: {scenario.plan.duration_s:.0f} s", err=True)
            redis_server, found[name] = measured(scenario)
            Console().print(targets.table(scenario.question, found[name]))
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    if json_file is not None:
        parameters = {name: asdict(scenario.plan) for name, scenario in chosen.items()}
        record.write(json_file, report.document(parameters, started_at, redis_server, found))
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for rows in found.values() for row in rows) else 0)


def measured(scenario: Scenario) -> tuple[str, list[Row]]:
    """The version of Redis, and the figures. Raises CannotStart."""
    try:
        with tempfile.TemporaryDirectory(prefix="outage-") as folder, running_redis() as server:
            return server.version(), uvloop.run(_within_limit(scenario, server, Path(folder)))
    except (ServiceFailed, OSError, httpx.HTTPError) as error:
        raise CannotStart(f"{scenario.question}: {error}") from error
    except ExceptionGroup as failures:
        if failures.split((ServiceFailed, OSError, httpx.HTTPError))[1] is not None:
            raise
        raise CannotStart(f"{scenario.question}: {failures.exceptions[0]}") from failures


async def _within_limit(scenario: Scenario, server: RedisServer, folder: Path) -> list[Row]:
    limit_s = scenario.plan.duration_s + SPARE_S
    try:
        async with asyncio.timeout(limit_s), stand(server, folder, scenario.interval_s) as at:
            return await scenario.run(at)
    except TimeoutError as error:
        raise ServiceFailed(f"took longer than {limit_s:.0f} s") from error


if __name__ == "__main__":
    main()

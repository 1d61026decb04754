"""The command line of a single worker's throughput: `python -m benchmarks.throughput --help`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console

from benchmarks import record, targets
from benchmarks.command import FILE, CannotStart, prepare
from benchmarks.routing.caller import NotServed
from benchmarks.routing.workers import MODEL, Engines
from benchmarks.throughput.measurements import Plan, measure, rows
from deploy.services import ServiceFailed

DISTRIBUTIONS = ("vllm-gateway", "httptools", "msgspec", "starlette", "uvicorn", "uvloop", "vllm")


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--worker", "url", help="URL of one that runs. Left out: a simulated one.")
@click.option("--model", default=MODEL, help="That it serves.")
@click.option(
    "--streams", multiple=True, default=(64, 128, 256), type=click.IntRange(1), help="At once; repeatable."
)
@click.option("--prompt-tokens", default=512, type=click.IntRange(16))
@click.option("--output-tokens", default=512, type=click.IntRange(1), help="On average.")
@click.option("--spread", default=0.5, type=click.FloatRange(0, 1), help="Of output tokens, either way.")
@click.option("--seconds", default=40.0, type=click.FloatRange(1), help="Of each load.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Of which the medians count.")
@click.option("--alone", default=50, type=click.IntRange(1), help="Calls of one caller, each way.")
@click.option("--json", "json_file", type=FILE, help="Keep parameters, machine, rounds and rows here.")
@click.pass_context
def main(
    context: click.Context, /, url: str | None, model: str, json_file: Path | None, **counts: Any
) -> None:
    """Offer a worker some streams and more than are good for it, straight and through the gateway in turn.

    Exit status: 0 if every target is met, 1 if one is not, 2 if it could not be measured. Linux only.
    """
    plan = Plan(**counts)
    engines = Engines(1, urls=(url.rstrip("/"),) if url else (), model=model)
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    try:
        rounds = measure(plan, engines, lambda text: click.echo(text, err=True))
    except (ServiceFailed, NotServed, OSError, httpx.HTTPError) as error:
        raise CannotStart(str(error)) from error
    found = rows(rounds)
    Console().print(targets.table("a single worker", found))
    if json_file is not None:
        document = {
            "benchmark": "throughput",
            "started_at": started_at.isoformat(timespec="seconds"),
            "parameters": asdict(plan) | {"worker": "given" if url else "simulated"},
            "machine": record.machine(),
            "versions": record.versions(DISTRIBUTIONS),
            "commit": record.commit(),
            "rows": [row.kept() for row in found],
            "rounds": [asdict(each) for each in rounds],
        }
        record.write(json_file, document)
        click.echo(f"kept in {json_file}")
    context.exit(1 if any(row.met is False for row in found) else 0)


if __name__ == "__main__":
    main()

"""The command line of the burst: `python -m benchmarks.burst --help`."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import click
import openai
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import record
from benchmarks.burst import prompts, report
from benchmarks.burst.client import fire, open_client
from benchmarks.burst.records import Endpoint, Plan, Record
from benchmarks.burst.summary import Summary, summarize
from benchmarks.command import FILE, SPARE_FILES, CannotStart, allow_open_files, prepare

POOL_LIMIT = 1000  # connections of one SDK client
GREETING_TIMEOUT_S = 10.0  # for the first, small request, which finds out whether there is a server


@click.command(context_settings={"show_default": True, "max_content_width": 110})
@click.option("--base-url", envvar="OPENAI_BASE_URL", default="http://127.0.0.1:8080/v1", show_envvar=True)
@click.option(
    "--api-key", envvar="OPENAI_API_KEY", required=True, show_envvar=True, help="Any, if none is needed."
)
@click.option("--model", default="", help="Left out: the first that the server lists.", show_default=False)
@click.option("--requests", default=100, type=click.IntRange(1), help="How many.")
@click.option(
    "--concurrency",
    default=POOL_LIMIT,
    type=click.IntRange(1, POOL_LIMIT),
    help="Most at once. Left out: all, as far as the SDK's connection pool goes.",
    show_default=False,
)
@click.option("--endpoint", default="chat", type=click.Choice(get_args(Endpoint)))
@click.option("--stream/--no-stream", default=True, help="Without streaming there is no time to first token.")
@click.option("--max-tokens", default=64, type=click.IntRange(1), help="Longest output of each.")
@click.option("--prompt-tokens", default=32, type=click.IntRange(1), help="About so many in each, made up.")
@click.option(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Prompts of your own instead, one a line.",
)
@click.option("--seed", default=0, help="Of the made-up prompts. A new one keeps prefix caches out of it.")
@click.option("--max-retries", default=0, type=click.IntRange(0), help="By the SDK, whose own default is 2.")
@click.option(
    "--timeout",
    "timeout_s",
    default=600.0,
    type=click.FloatRange(0, min_open=True),
    help="Longest wait for a byte, seconds.",
)
@click.option(
    "--json", "json_file", type=FILE, help="Keep parameters, machine, summary and every request here."
)
@click.pass_context
def main(context: click.Context, /, api_key: str, json_file: Path | None, **parameters: Any) -> None:
    """Fire a burst of requests through the official openai SDK, all at once, and say what came of it.

    Exit status: 0 if every request was answered in full, 1 if any was not, 2 if none could be sent.
    """
    plan = Plan(**parameters)
    plan = replace(plan, concurrency=min(plan.concurrency, plan.requests))
    texts = prompts_for(plan)
    allow_open_files(plan.concurrency + SPARE_FILES, "--concurrency")
    if json_file is not None:
        prepare(json_file)
    started_at = datetime.now(UTC)
    plan, records = asyncio.run(measure(plan, api_key, texts))
    summary = summarize(records)
    show(plan, summary)
    if json_file is not None:
        record.write(json_file, report.document(plan, started_at, summary, records))
        click.echo(f"kept in {json_file}")
    context.exit(1 if summary.failed else 0)


def show(plan: Plan, summary: Summary) -> None:
    """The result on standard output."""
    console = Console()
    console.print(report.table(plan, summary))
    for line in report.error_lines(summary):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)


def prompts_for(plan: Plan) -> Sequence[str]:
    """One a request. Raises CannotStart where the file has none."""
    if plan.prompt_file is None:
        return prompts.made_up(plan.requests, plan.prompt_tokens, plan.seed)
    try:
        return prompts.from_file(Path(plan.prompt_file), plan.requests)
    except ValueError as error:
        raise CannotStart(str(error)) from error


async def measure(plan: Plan, api_key: str, texts: Sequence[str]) -> tuple[Plan, list[Record]]:
    """The records of the burst, and the plan with the model that was asked for."""
    async with open_client(plan, api_key) as client:
        plan = replace(plan, model=await model_of(client, plan))
        with burst_progress() as progress:
            task = progress.add_task("", total=plan.requests, failed=0)
            failed = 0

            def on_done(record: Record) -> None:
                nonlocal failed
                failed += record.failure is not None
                progress.update(task, advance=1, failed=failed)

            return plan, await fire(client, plan, texts, on_done)


async def model_of(client: openai.AsyncOpenAI, plan: Plan) -> str:
    """The model to ask for. Tells too whether there is a server, and whether it takes the key.

    Raises CannotStart.
    """
    try:
        listed = await client.with_options(
            max_retries=0, timeout=GREETING_TIMEOUT_S
        ).models.with_raw_response.list()
    except openai.APIConnectionError as error:
        raise CannotStart(
            f"cannot reach {plan.base_url}: {error.__cause__ or error.message}. "
            "Is the server running, and the address right (--base-url)?"
        ) from error
    except openai.AuthenticationError as error:
        raise CannotStart(f"{plan.base_url} refuses the key (--api-key): {error.message}") from error
    except openai.APIStatusError as error:
        found, answer = [], str(error.status_code)
    else:
        answer = listed.headers.get("content-type", "no content type")
        found = listed.parse().data if answer.startswith("application/json") else []
    if plan.model:  # a server may serve it and have no list
        return plan.model
    if not found:
        raise CannotStart(
            f"{plan.base_url} lists no model ({answer}): "
            "name one with --model, or mend --base-url, which mostly ends in /v1"
        )
    return found[0].id


def burst_progress() -> Progress:
    """On standard error, so that standard output holds the result alone."""
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


if __name__ == "__main__":
    main()

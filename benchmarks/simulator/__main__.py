"""The command line of the simulator: `python -m benchmarks.simulator --help`."""

import asyncio
import contextlib
import signal
import socket
from pathlib import Path
from typing import TypedDict, Unpack

import click
import uvloop
from rich.console import Console

from benchmarks.command import FILE, CannotStart
from benchmarks.simulator import fit as fitting
from benchmarks.simulator import report
from benchmarks.simulator.asked import Model
from benchmarks.simulator.costs import H200, Costs
from benchmarks.simulator.measured import Measurements
from benchmarks.simulator.request import Limits
from benchmarks.simulator.server import BACKLOG, Options, serving

AT_LEAST_1 = click.IntRange(1)
HIGHEST_PORT = 65535
DEFAULTS = Limits()


class Flags(TypedDict):
    """Of a worker, as typed."""

    model: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_num_queued_reqs: int | None
    kv_tokens: int
    speed: float
    mean_output_tokens: float
    seed: int


@click.group(context_settings={"show_default": True, "max_content_width": 110})
def main() -> None:
    """Workers as vLLM would run them on a GPU, without one."""


@main.command()
@click.option("--host", default="127.0.0.1")
@click.option(
    "--port", required=True, type=click.IntRange(0, HIGHEST_PORT), help="Of the first worker; 0: free ones."
)
@click.option("--count", default=1, type=AT_LEAST_1, help="Workers, on consecutive ports.")
@click.option("--model", required=True, help="The name they serve.")
@click.option("--max-model-len", default=DEFAULTS.max_model_len, type=click.IntRange(2), help="Tokens.")
@click.option("--max-num-seqs", default=DEFAULTS.max_num_seqs, type=AT_LEAST_1)
@click.option("--max-num-batched-tokens", default=DEFAULTS.max_num_batched_tokens, type=AT_LEAST_1)
@click.option("--long-prefill-token-threshold", default=0, type=click.IntRange(0), help="0: none.")
@click.option("--max-num-queued-reqs", type=AT_LEAST_1, help="Unfinished ones; more are answered 503.")
@click.option("--kv-tokens", default=DEFAULTS.kv_tokens, type=AT_LEAST_1, help="That the KV cache holds.")
@click.option("--speed", default=1.0, type=click.FloatRange(0, min_open=True), help="Virtual s a second.")
@click.option("--mean-output-tokens", default=200.0, type=click.FloatRange(1), help="Without ignore_eos.")
@click.option("--seed", default=0, type=click.IntRange(0), help="Of the answers' lengths.")
def serve(host: str, port: int, count: int, **flags: Unpack[Flags]) -> None:
    """Serve vLLM's API until SIGTERM or Ctrl-C, and print where."""
    if port + count - 1 > HIGHEST_PORT:
        raise CannotStart(f"{count} ports from {port} on: the highest is {HIGHEST_PORT}")
    try:
        options = _options(flags, Costs.load())
        with contextlib.ExitStack() as unless_started:
            listeners = [
                unless_started.enter_context(_listener(host, port + index if port else 0))
                for index in range(count)
            ]
            unless_started.pop_all()
    except (ValueError, OSError) as error:
        raise CannotStart(str(error)) from error
    uvloop.run(_serve(options, listeners))


def _options(flags: Flags, costs: Costs) -> Options:
    """Raises ValueError where they contradict each other."""
    limits = Limits(
        max_num_seqs=flags["max_num_seqs"],
        max_num_batched_tokens=flags["max_num_batched_tokens"],
        long_prefill_token_threshold=flags["long_prefill_token_threshold"],
        kv_tokens=flags["kv_tokens"],
        max_model_len=flags["max_model_len"],
    )
    model = Model(flags["model"], limits.max_model_len, flags["mean_output_tokens"], flags["seed"])
    return Options(model, limits, costs, flags["speed"], flags["max_num_queued_reqs"])


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), backlog=BACKLOG)


async def _serve(options: Options, listeners: list[socket.socket]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as workers:
        for listener in listeners:
            await workers.enter_async_context(serving(options, listener))
            host, port = listener.getsockname()
            click.echo(f"listening on http://{host}:{port}")
        await stop.wait()


@main.command()
def validate() -> None:
    """Play the measured loads and print how far the engine is from what was measured."""
    found = report.rows(Measurements.load(), Costs.load())
    Console().print(report.table(found))
    near = sum(row.is_near for row in found)
    click.echo(f"{near} of {len(found)} figures within {report.WITHIN:.0%}")


@main.command()
@click.option("--output", "costs_file", default=H200, type=FILE, help="Where the coefficients are kept.")
def fit(costs_file: Path) -> None:
    """Fit the costs to the measured closed loops anew: about a minute."""
    loads = Measurements.load().closed_loop
    fitting.write(costs_file, loads, fitting.fit(loads))
    click.echo(f"kept in {costs_file}")


if __name__ == "__main__":
    main()

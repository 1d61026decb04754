"""What does it cost one of several processes to tell Prometheus what all of them have counted?

The others run as `python -m benchmarks.balance.scrape FOLDER NUMBER COUNT`, each until its input ends.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import uvloop

from gateway.accounting import BUCKETS, Ledger, Tallies
from gateway.metrics import Board, Metrics, Source
from gateway.model import Endpoint, Worker

TENANTS = [f"tenant-{number}" for number in range(50)]
MODELS = [f"model-{number}" for number in range(4)]
OUTCOMES = ["ok", *(f"outcome_{number}" for number in range(11))]
WAITS = ["served", *OUTCOMES[1:4]]
WORKERS = [Worker(f"w{number}", 3, 64) for number in range(16)]
SIZES = (0.0003, 0.02, 0.3, 4.0, 1000.0)


def filled() -> Ledger:
    """Everything that may be counted has been."""
    ledger = Ledger(time.monotonic, lambda line: None)
    ledger.requests.update(dict.fromkeys(product(Endpoint, MODELS, TENANTS, OUTCOMES), 1000))
    ledger.tokens.update(dict.fromkeys(product(TENANTS, MODELS, ("prompt", "completion")), 10_000_000))
    ledger.limited.update(dict.fromkeys(product(("requests", "tokens", "concurrency")), 50))
    ledger.worker_failures.update(dict.fromkeys(product((of.id for of in WORKERS), OUTCOMES[1:4]), 5))
    for tallies, labels in (
        (ledger.seconds, product(Endpoint, MODELS)),
        (ledger.ttft, product(MODELS, BUCKETS[:3])),
        (ledger.inter_token, product(MODELS)),
        (ledger.queue_wait, product(BUCKETS[:3], WAITS)),
        *((one, [()]) for one in (ledger.overhead, ledger.store_seconds, ledger.estimate_error)),
    ):
        _observe(tallies, labels)
    return ledger


def _observe(tallies: Tallies, all_labels: Iterable[tuple[str, ...]]) -> None:
    for labels in all_labels:
        for size in SIZES:
            tallies[labels].add(size)


def count_on(ledger: Ledger) -> None:
    """A request of each kind has ended."""
    for labels in ledger.requests:
        ledger.requests[labels] += 1
    for labels in ledger.tokens:
        ledger.tokens[labels] += 100
    for labels, tally in ledger.seconds.items():
        tally.add(len(labels[1]) / 3)


def board(folder: Path, number: int, count: int, ledger: Ledger, each_time: bool) -> tuple[Source, Board]:
    """each_time: it goes on counting whenever it is asked."""

    def depth() -> dict[int, int]:
        if each_time:
            count_on(ledger)
        return {0: 3, 1: 2, 2: 1}

    source = Source(ledger, 3, depth, lambda: [(worker, True) for worker in WORKERS], lambda: False)
    return source, Board(source, folder, number, count)


async def scrape_ms(processes: int, rounds: int) -> list[float]:
    """Processor time of this process, one of so many, for each of some scrapes, in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="scrape-") as place, ExitStack() as stack:
        folder = Path(place)
        for number in range(1, processes):
            stack.enter_context(_sibling(folder, number, processes))
        ledger = filled()
        source, own = board(folder, 0, processes, ledger, each_time=False)
        metrics = Metrics(source, own)
        found = []
        async with own:
            for _ in range(rounds):
                count_on(ledger)
                began_s = time.process_time()
                await metrics.text()
                found.append((time.process_time() - began_s) * 1000)
        return found


@contextmanager
def _sibling(folder: Path, number: int, count: int) -> Iterator[None]:
    argv = [sys.executable, "-m", "benchmarks.balance.scrape", str(folder), str(number), str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        try:
            process.stdout.readline()  # it has begun
            yield
        finally:
            process.stdin.close()


async def sit(folder: Path, number: int, count: int) -> None:
    """Answer whoever asks, until the input ends."""
    _, own = board(folder, number, count, filled(), each_time=True)
    async with own:
        print("begun", flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, ended.set)
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(sit(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))

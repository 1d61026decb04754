"""How is a room measured? By batches of one thing after the other, in a loop that does nothing else."""

from collections.abc import Callable, Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.rooms.wires import Batch, Loop

STEPS = 1024  # in a batch: what it costs to enter and leave the loop is not to be seen any more

Timed = Callable[..., None]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def timed(benchmark: BenchmarkFixture, loop: Loop) -> Timed:
    """Times a batch, and notes how many things one is."""

    def measure(batch: Batch, steps: int = STEPS) -> None:
        benchmark.extra_info["steps"] = steps
        benchmark(lambda: loop.run_until_complete(batch(steps)))

    return measure

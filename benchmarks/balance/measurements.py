"""What is measured of several processes, how, and what is it held to?"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import uvloop

from benchmarks.balance.callers import Crowd
from benchmarks.balance.orders import (
    Order,
    Outcome,
    after_a_kill,
    after_a_kill_beside_idle,
    beside_one_that_hangs,
    burst,
    lone_visits,
    one_by_one,
    reused,
    visits,
)
from benchmarks.balance.processes import Processes, running_processes
from benchmarks.balance.scrape import scrape_ms
from benchmarks.balance.stand import Way
from benchmarks.targets import Row

OURS: Way = "gateway"  # the one that is held to the targets
MOST_OVER_MEAN = 1.5
SETTLE_S = 0.2  # for processes to notice that all callers have left
HUNG_VISITS = 32

EVEN: dict[str, Order] = {"burst": burst, "one by one": one_by_one}
POOLED = "reused connections"
KILLED: dict[str, Order] = {
    "after a kill": after_a_kill,
    "after a kill, beside idle connections": after_a_kill_beside_idle,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of all measurements."""

    processes: Sequence[int]
    streams: Sequence[int]
    ways: Sequence[Way]
    visits: int
    rounds: int  # of which the worst counts; of processor times the median


@dataclass(frozen=True, slots=True)
class Taken:
    """What one order has come to, in all rounds."""

    way: Way
    processes: int
    order: str
    outcomes: Sequence[Outcome]

    def kept(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "way": self.way,
            "processes": self.processes,
            "order": self.order,
            "rounds": [{"streams": sorted(each.streams.values()), **each.figures} for each in self.outcomes],
        }


def measure(plan: Plan) -> Iterator[Taken]:
    """Raises ServiceFailed, OSError or NotAnswered."""
    for count in plan.processes:
        for way in plan.ways:
            with running_processes(way, count) as processes:
                for name, order, size in _orders(plan):
                    outcomes = [uvloop.run(_outcome(order, processes, size)) for _ in range(plan.rounds)]
                    yield Taken(way, count, name, outcomes)


def _orders(plan: Plan) -> Iterator[tuple[str, Order, int]]:
    for streams in plan.streams:
        for name, order in {**EVEN, POOLED: reused, **KILLED}.items():
            yield f"{streams} streams, {name}", order, streams
    yield "one hangs", beside_one_that_hangs, HUNG_VISITS
    yield "visits", visits, plan.visits
    yield "lone visits", lone_visits, plan.visits


async def _outcome(order: Order, processes: Processes, size: int) -> Outcome:
    async with Crowd(processes.port) as crowd:
        outcome = await order(processes, crowd, size)
    time.sleep(SETTLE_S)  # noqa: ASYNC251 - there is nothing else to do
    return outcome


def rows(taken: Taken) -> list[Row]:
    """Of the way that the gateway goes they are held to targets."""
    ours = taken.way == OURS
    title = f"{taken.processes} processes, {taken.way}: {taken.order}"
    found = []
    if any(each.streams for each in taken.outcomes):
        bound = MOST_OVER_MEAN if ours and not taken.order.endswith(POOLED) else None
        worst = max(most_over_mean(each, taken.processes) for each in taken.outcomes)
        found.append(Row(f"{title}: most / mean", worst, at_most=bound))
    for name, unit, one_of, at_most in FIGURES:
        if all(name in each.figures for each in taken.outcomes):
            value = one_of([each.figures[name] for each in taken.outcomes])
            found.append(Row(f"{title}: {NAMES[name]}", value, unit, at_most=at_most if ours else None))
    return found


NAMES = {"newcomer": "newcomer / mean", "longest_wait_ms": "longest wait", "cpu_us": "CPU of one"}
FIGURES = (
    ("newcomer", "", min, None),
    ("longest_wait_ms", "ms", max, 250.0),
    ("cpu_us", "µs", median, None),
)


def most_over_mean(outcome: Outcome, processes: int) -> float:
    """1: all have the same. As large as the number of processes: one has all."""
    return max(outcome.streams.values()) * processes / sum(outcome.streams.values())


def scrape_rows(plan: Plan) -> list[Row]:
    """Of a process that is asked for metrics: the first time, when it meets all series, and then."""
    most = max(plan.processes)
    first_ms, *others_ms = uvloop.run(scrape_ms(most, 1 + 5 * plan.rounds))
    title = f"{most} processes: CPU of a scrape of /metrics"
    return [Row(f"{title}, the first", first_ms, "ms"), Row(title, median(others_ms), "ms", at_most=20)]

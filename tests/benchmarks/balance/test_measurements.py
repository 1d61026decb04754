"""Are streams counted where they are, and are the figures held to the targets?"""

from collections.abc import Iterator

import pytest
import uvloop

from benchmarks.balance.callers import SHORT, STREAM, Answer, Caller, Crowd, NotAnswered, at_once, by_process
from benchmarks.balance.measurements import Taken, most_over_mean, rows
from benchmarks.balance.orders import (
    Outcome,
    after_a_kill,
    beside_one_that_hangs,
    burst,
    one_by_one,
    reused,
)
from benchmarks.balance.processes import Processes, running_processes
from benchmarks.balance.scrape import filled, scrape_ms
from benchmarks.balance.stand import WAYS, Way
from tests.ports import free_ports


@pytest.fixture(scope="module", params=WAYS)
def processes(request: pytest.FixtureRequest) -> Iterator[Processes]:
    with running_processes(request.param, 2) as found:
        yield found


# What is measured


async def test_every_way_serves_by_all_of_its_processes(processes: Processes) -> None:
    assert len(processes.pids()) == 2
    assert processes.cpu_s() > 0
    async with Crowd(processes.port) as crowd:
        [caller] = crowd.come(1)
        for _ in range(2):  # the connection is kept
            answer = await caller.ask(SHORT)
            assert answer.pid in processes.pids()
            assert answer.process in (0, 1)
            assert answer.took_s > 0


async def test_streams_stay_open_in_every_order(processes: Processes) -> None:
    for order in (burst, one_by_one, reused):
        async with Crowd(processes.port) as crowd:
            outcome = await order(processes, crowd, 6)
            assert sum(outcome.streams.values()) == 6
            assert outcome.streams.keys() <= {0, 1}


async def test_streams_of_a_killed_process_do_not_count_and_it_is_replaced(processes: Processes) -> None:
    before = set(processes.pids())
    async with Crowd(processes.port) as crowd:
        outcome = await after_a_kill(processes, crowd, 6)
    assert 3 <= sum(outcome.streams.values()) < 6
    assert len(before & set(processes.pids())) == 1
    assert outcome.figures["longest_wait_ms"] > 0


def test_a_process_that_hung_goes_on_afterwards() -> None:
    with running_processes("gateway", 2) as processes:

        async def hung() -> Outcome:
            async with Crowd(processes.port) as crowd:
                return await beside_one_that_hangs(processes, crowd, 2)

        assert uvloop.run(hung()).figures["longest_wait_ms"] > 0
        assert len(processes.pids()) == 2


async def test_who_gets_no_answer_says_so() -> None:
    with pytest.raises(NotAnswered, match="a caller got no answer"):
        await Caller(free_ports(1)[0]).ask(STREAM)


async def test_answers_are_counted_by_process() -> None:
    assert by_process([Answer(0, 10, 0.1), Answer(1, 11, 0.1), Answer(0, 10, 0.1)]) == {0: 2, 1: 1}
    assert await at_once([], STREAM) == []


# Rows


def taken(way: Way, order: str = "burst", **figures: float) -> Taken:
    worse = {name: value + 1 for name, value in figures.items()}
    return Taken(way, 2, order, [Outcome({0: 3, 1: 1}, figures), Outcome({0: 2, 1: 2}, worse)])


def test_one_is_as_even_as_it_gets() -> None:
    assert most_over_mean(Outcome({0: 4, 1: 4}), 2) == 1
    assert most_over_mean(Outcome({1: 4}), 4) == 4


def test_the_worst_round_counts() -> None:
    found = rows(taken("gateway", newcomer=0.5, longest_wait_ms=3.0, cpu_us=100.0))
    assert [(row.name.rpartition(": ")[2], row.value) for row in found] == [
        ("most / mean", 1.5),
        ("newcomer / mean", 0.5),
        ("longest wait", 4.0),
        ("CPU of one", 100.5),
    ]


def test_only_our_way_has_targets_and_not_where_callers_choose_the_connection() -> None:
    assert [row.met for row in rows(taken("gateway", longest_wait_ms=3.0))] == [True, True]
    assert [row.met for row in rows(taken("gateway", "4 streams, reused connections"))] == [None]
    assert [row.met for row in rows(taken("first come", longest_wait_ms=3.0))] == [None, None]


# Scrapes


def test_a_scrape_is_of_thousands_of_series() -> None:
    ledger = filled()
    assert len(ledger.requests) == 2 * 4 * 50 * 12
    assert all(sum(tally.counts) for tally in ledger.queue_wait.values())


async def test_each_scrape_is_measured() -> None:
    found = await scrape_ms(processes=2, rounds=2)
    assert len(found) == 2
    assert min(found) > 0

"""In which orders do long streams come, and where do they end up?"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.balance.callers import (
    SHORT,
    STREAM,
    TIMEOUT_S,
    Crowd,
    NotAnswered,
    at_once,
    by_process,
    in_turn,
)
from benchmarks.balance.processes import Processes

PAUSE_S = 0.003
VISITORS = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """streams: open ones by process. figures: others, by name."""

    streams: Mapping[int, int]
    figures: Mapping[str, float] = field(default_factory=dict)


Order = Callable[[Processes, Crowd, int], Awaitable[Outcome]]


async def burst(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """All at once."""
    return Outcome(by_process(await at_once(crowd.come(count), STREAM)))


async def one_by_one(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """Each a few milliseconds after the one before has begun."""
    return Outcome(by_process(await in_turn(crowd.come(count), STREAM, PAUSE_S)))


async def reused(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """On half of the connections that short requests have left."""
    pool = crowd.come(2 * count)
    await at_once(pool, SHORT)
    half = random.Random(count).sample(pool, count)
    return Outcome(by_process(await at_once(half, STREAM)))


async def after_a_kill(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """Half of them, then a process is killed; the other half once it has been replaced."""
    return await _killed(processes, crowd, count, idle=0)


async def after_a_kill_beside_idle(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """The same where each process has idle connections too, of which the newcomer has none."""
    return await _killed(processes, crowd, count, idle=2 * count)


async def _killed(processes: Processes, crowd: Crowd, count: int, idle: int) -> Outcome:
    await at_once(crowd.come(idle), SHORT)
    before = await at_once(crowd.come(count // 2), STREAM)
    victim = before[0]
    with processes.replaced(1) as replaced:
        os.kill(victim.pid, signal.SIGKILL)
        soon = await in_turn(crowd.come(VISITORS), SHORT, 0.0)
        await replaced()
    after = await in_turn(crowd.come(count - count // 2), STREAM, PAUSE_S)
    kept = Counter(answer.process for answer in before if answer.pid != victim.pid)
    streams = kept + by_process(after)
    mean = streams.total() / processes.count
    return Outcome(
        streams,
        {
            "newcomer": streams[victim.process] / mean,
            "longest_wait_ms": max(answer.took_s for answer in soon) * 1000,
        },
    )


async def beside_one_that_hangs(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """One process stands still meanwhile: how long do short requests take?"""
    [somebody] = await at_once(crowd.come(1), SHORT)
    os.kill(somebody.pid, signal.SIGSTOP)
    try:
        answers = await in_turn(crowd.come(count), SHORT, PAUSE_S)
    except NotAnswered:  # of a connection that waits for that one alone
        return Outcome({}, {"longest_wait_ms": TIMEOUT_S * 1000})
    finally:
        os.kill(somebody.pid, signal.SIGCONT)
    return Outcome({}, {"longest_wait_ms": max(answer.took_s for answer in answers) * 1000})


async def visits(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """Short requests, each on a connection of its own, some at once: what does one cost all processes?"""
    before_s = processes.cpu_s()

    async def visit(times: int) -> None:
        for _ in range(times):
            [caller] = crowd.come(1)
            await caller.ask(SHORT)
            caller.close()

    times = -(-count // VISITORS)
    await asyncio.gather(*(visit(times) for _ in range(VISITORS)))
    return Outcome({}, {"cpu_us": (processes.cpu_s() - before_s) / (times * VISITORS) * 1e6})


async def lone_visits(processes: Processes, crowd: Crowd, count: int) -> Outcome:
    """The same, one after the other: each finds all processes idle, and wakes them."""
    before_s = processes.cpu_s()
    for caller in crowd.come(count):
        await caller.ask(SHORT)
        caller.close()
    return Outcome({}, {"cpu_us": (processes.cpu_s() - before_s) / count * 1e6})

"""A worker dies under load and comes back: who notices, and for how long?"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.routing.caller import Answer
from benchmarks.routing.workers import Workers
from benchmarks.simulator.loads import quantile

KILLED = 0  # index of the worker
DOWN_S = 8.0
GRACE_S = 5.0  # for all to be as before, from when it is ready again


@dataclass(frozen=True, slots=True)
class Kill:
    """When, after the start of the load. All times are virtual seconds."""

    at_s: float

    async def conduct(self, workers: Workers, speed: float) -> float:
        """Kill the worker and start it again. Returns when it was ready, after the start."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(self.at_s / speed)
        await asyncio.to_thread(workers.kill, KILLED)
        await asyncio.sleep(DOWN_S / speed)
        workers.relaunch(KILLED)
        await asyncio.to_thread(workers.wait_ready, KILLED)
        return (loop.time() - began_s) * speed

    def figures(self, answers: Sequence[Answer], warm_up_s: float, up_s: float) -> dict[str, float | None]:
        """What the short calls waited before, while it was down, at first after, and then; and who was lost.

        up_s: when the worker was ready again. Waits for the first token are p99 by that of before, None where
        nobody was answered.
        """
        on_it = f"w{KILLED}"  # no other target tells of workers: who was cut there had been on this one
        lost = [answer for answer in answers if answer.outcome in ("cut", "failed")]
        mid_stream = sum(answer.outcome == "cut" and answer.worker in (on_it, "") for answer in lost)
        before_s = _p99_s(answers, warm_up_s, self.at_s)
        windows = {
            "down": (self.at_s, up_s),
            "grace": (up_s, up_s + GRACE_S),
            "after": (up_s + GRACE_S, math.inf),
        }
        return {
            "up_s": up_s,
            "before_p99_s": before_s,
            **{
                f"{name}_to_before": _by(_p99_s(answers, *window), before_s)
                for name, window in windows.items()
            },
            "cut_on_it": mid_stream,
            "unanswered_on_it": sum(answer.outcome == "failed" and answer.worker == on_it for answer in lost),
            "lost_otherwise": len(lost) - mid_stream,
        }


def _by(value_s: float | None, before_s: float | None) -> float | None:
    return value_s / before_s if value_s and before_s else None


def _p99_s(answers: Sequence[Answer], since_s: float, until_s: float) -> float | None:
    waits = [
        answer.ttft_s
        for answer in answers
        if answer.call.size == "short" and since_s <= answer.call.at_s < until_s and answer.ttft_s is not None
    ]
    return quantile(waits, 0.99) if waits else None

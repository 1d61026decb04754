"""Workers with so many places, and the queue before them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway import settings
from gateway.admission import Admission, Turn
from gateway.errors import NoWorker
from gateway.model import Job, Tenant, Usage
from tests.gateway.test_model import Clock, job, trip

FLOODER, OTHER = Tenant("flooder"), Tenant("other")
FOREVER = 1000  # seconds that no test waits
CONTEXT = 4000  # tokens, of the shorter workers


class Place:
    """A place at a worker, given back at most once."""

    def __init__(self, house: "House", holder: str) -> None:
        self.house = house
        self.holder = holder
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.house.free[self.house.served_at] += 1


class House:
    """Workers with so many places for each model, and a queue before them."""

    served_at = "small"

    def __init__(self, free: dict[str, int] | None = None, **rules: Any) -> None:
        self.clock = Clock()
        self.free = Counter(free or {})
        self.is_up = True
        self.takes_long = True  # whether long prompts find a place
        self.takes_confined = True  # whether what needs longer workers does
        self.capacity = 0  # not known
        self.given: list[str] = []
        self.waits: list[tuple[int, float, str]] = []
        self.admission: Admission[Place] = Admission(
            settings.Admission(**({"max_wait_s": FOREVER} | rules)),
            self.place,
            self.clock,
            lambda *wait: self.waits.append(wait),
            lambda model: self.capacity,
            lambda job: job.context_tokens > CONTEXT,
        )
        self.tasks: list[asyncio.Task[str]] = []
        self.kept: list[Turn[Place]] = []

    def place(self, job: Job, waited_s: float) -> Place | None:
        if not self.is_up:
            raise NoWorker("None is up.", retry_after_s=2)
        if not self.free[job.model] or (job.is_long and not self.takes_long):
            return None
        if job.context_tokens > CONTEXT and not self.takes_confined:
            return None
        self.free[job.model] -= 1
        self.given.append(job.id)
        return Place(self, job.id)

    def let_in(self, count: int = 1, model: str = "small") -> None:
        self.free[model] += count
        self.admission.wake(model)

    async def queue(self, *ids: str, **fields: Any) -> None:
        """Requests that come one after the other; each keeps the place that it gets."""
        for id in ids:
            self.tasks.append(asyncio.create_task(self.keep(job(**({"id": id} | fields)))))
            await asyncio.sleep(0)

    async def keep(self, job: Job) -> str:
        self.kept.append(await self.admission.enter(job, trip()))
        return job.id

    async def serve(self, held_s: float, used: Usage | None = None, **fields: Any) -> None:
        """A request has its place for so long, and ends."""
        done = trip()
        with await self.admission.enter(job(**fields), done):
            self.clock.now += held_s
            done.charged = used or Usage(10, 1)

    async def outcomes(self) -> list[object]:
        """How each that queued came out: its id, or the kind of its error."""
        ends = await asyncio.gather(*self.tasks, return_exceptions=True)
        return [end if isinstance(end, str) else type(end) for end in ends]

    def waiting(self) -> int:
        return sum(self.admission.depth().values())


@asynccontextmanager
async def house(free: dict[str, int] | None = None, **rules: Any) -> AsyncIterator[House]:
    """At the end, nobody may be waiting and nobody be counted."""
    made = House(free, **rules)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    for turn in made.kept:
        turn.__exit__(None, None, None)
    assert made.waiting() == 0
    assert len(made.admission._queue) == 0
    assert not made.admission._queue._schedules, "all that was dispatched is settled"
    assert not made.admission._running

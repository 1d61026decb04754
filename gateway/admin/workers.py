"""Workers over the admin API: list, drain, resume."""

from typing import Literal

from gateway.admin.operations import Asked, Nothing, Operation, Operations, Shown
from gateway.fleet import Fleet, Member, Roster


class Worker(Shown):
    """A worker as the process that answers sees it."""

    object: Literal["worker"] = "worker"
    id: str
    model: str
    up: bool
    """Its health checks succeed."""
    draining: bool
    """It gets no new requests. The same in all processes."""
    in_flight: int
    """Requests that this process has at it."""
    limit: int
    """The most that this process sends at once."""
    waiting_prefill_tokens: int
    """Prompt tokens of those requests that have no first token yet."""
    failures: int
    """Health checks and connections that failed, in a row."""


class WorkerList(Shown):
    object: Literal["list"] = "list"
    data: list[Worker]


class Workers:
    def __init__(self, fleet: Fleet, roster: Roster) -> None:
        self._fleet = fleet
        self._roster = roster

    def operations(self) -> Operations:
        drain, resume = "/admin/workers/{id}/drain", "/admin/workers/{id}/resume"
        yield Operation("listWorkers", "GET", "/admin/workers", self.all, Nothing, WorkerList)
        yield Operation("drainWorker", "POST", drain, self.drain, Nothing, Worker, also=(404,))
        yield Operation("resumeWorker", "POST", resume, self.resume, Nothing, Worker, also=(404,))

    async def all(self, asked: Asked[Nothing]) -> WorkerList:
        """All workers."""
        return WorkerList(data=[_shown(member) for member in self._fleet.members.values()])

    async def drain(self, asked: Asked[Nothing]) -> Worker:
        """Give a worker no new requests, in all processes; what is under way at it goes on.

        It has drained when in_flight is 0 in each of them, which the metric gateway_in_flight tells.
        """
        return _shown(await self._roster.drain(asked.id))

    async def resume(self, asked: Asked[Nothing]) -> Worker:
        """Give a worker requests again."""
        return _shown(await self._roster.resume(asked.id))


def _shown(member: Member) -> Worker:
    return Worker(
        id=member.id,
        model=member.configured,
        up=member.up,
        draining=member.draining,
        in_flight=member.in_flight,
        limit=member.limit,
        waiting_prefill_tokens=member.load.prefill_tokens,
        failures=member.failures,
    )

"""What does this process tell the others of its queue and workers, and what does it make of their news?"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.admission import Admission
from gateway.fleet import Fleet
from gateway.model import Job
from gateway.peers import Others, Report, Served, Waiting, encode


class Sharing:
    """One process among several with the same workers; what stores call a peer."""

    def __init__(
        self,
        fleet: Fleet,
        admission: Admission[Any],
        others: Others,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._admission = admission
        self._others = others
        self._clock = clock
        self._served = Served()

    def settled(self, job: Job, work: float) -> None:
        """A request that had to wait has been served, which came to so much work."""
        self._served.add(job.model, job.caller.tenant.id, work, self._clock())

    def report(self) -> bytes:
        return encode(self._report())

    def is_idle(self) -> bool:
        return self._report().is_idle

    def learn(self, reports: Mapping[str, bytes], now_s: float) -> None:
        """now_s: seconds on a clock that all see."""
        for (model, tenant), work in self._others.update(reports, now_s).items():
            self._admission.served_elsewhere(model, tenant, work)
        self._fleet.note_others()
        self._admission.wake_all()  # nobody else tells of a place that came free elsewhere

    def lose(self) -> None:
        self._others.lose()
        self._admission.wake_all()  # an equal share may be more than what others had left

    def _report(self) -> Report:
        waiting: dict[str, Waiting] = {}
        for (model, is_long), count in self._admission.waiting().items():
            told = waiting.get(model, Waiting())
            # A long prompt that must wait for its turn to be read needs no place yet.
            for_place = count if not is_long or self._fleet.takes_long(model) else 0
            waiting[model] = Waiting(
                told.for_place + for_place, told.for_long_prefill + (count if is_long else 0)
            )
        return Report(self._fleet.shares(), waiting, self._served.recent(self._clock()))

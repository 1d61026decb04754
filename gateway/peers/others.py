"""What do the other processes have at each worker, and what does that leave for this one?"""

import logging
from collections.abc import Callable, Mapping, Set
from zlib import crc32

from gateway.peers.report import NOTHING, Report, Waiting, WorkerShare, decode
from gateway.peers.shares import blind_share, ceiling

log = logging.getLogger(__name__)

STALE_S = 3.0  # what was heard is worth nothing after that
TURN_S = 1.0  # for so long the same processes have the places that cannot be divided

ServedWork = dict[tuple[str, str], float]  # by model and tenant

_NOBODY = Waiting()


class Others:
    """What the other processes told last. All that is asked of it on the way of a request takes O(1).

    process: this one's name among all. siblings: how many processes there are at least, this one included.
    clock: monotonic, in seconds.
    """

    def __init__(self, process: str, clock: Callable[[], float], siblings: int = 1) -> None:
        self._process = process
        self._clock = clock
        self._siblings = siblings
        self._raw: Mapping[str, bytes] = {}
        self._reports: dict[str, Report] = {}
        self._unreadable: set[str] = set()  # whose reports cannot be read: of another version, mostly
        self._workers: dict[str, WorkerShare] = {}
        self._ceilings: dict[tuple[str, int, bool, bool], int] = {}  # worked out since something changed
        self._turn = 0
        self._fresh_until_s = self._absence_counts_from_s = float("-inf")
        self._is_lost = True

    @property
    def is_fresh(self) -> bool:
        """Whether what the others have is known. Otherwise each process takes an equal share."""
        return not self._unreadable and self._clock() < self._fresh_until_s

    @property
    def processes(self) -> int:
        """That live, this one included, as far as was ever heard."""
        return max(self._siblings, len(self._names()))

    def worker(self, worker: str) -> WorkerShare:
        """What the others have there together; nothing while that is not known."""
        return self._workers.get(worker, NOTHING) if self.is_fresh else NOTHING

    def ceiling(self, worker: str, model: str, limit: int) -> int:
        """How many requests this process may have at this worker, which serves this model, at once.

        limit: for all processes together.
        """
        return self._ceiling(worker, model, limit, False)

    def long_ceiling(self, worker: str, model: str, limit: int) -> int:
        """The same of long prompts without a first token."""
        return self._ceiling(worker, model, limit, True)

    def update(self, reports: Mapping[str, bytes], now_s: float) -> ServedWork:
        """Take in the latest report of every other process. Returns what they served since the last time.

        now_s: on a clock that all processes see. Of a process not heard before only what it serves from now
        on counts. After `lose` those that are missing count on for STALE_S: they may not be back yet.
        """
        moment = self._clock()
        if self._is_lost:
            self._absence_counts_from_s = moment + STALE_S
        self._is_lost, self._fresh_until_s = False, moment + STALE_S
        turn = int(now_s / TURN_S)
        served: ServedWork = {}
        changed = [process for process, raw in reports.items() if self._raw.get(process) != raw]
        for process in changed:
            self._take_in(process, reports[process], served)
        self._raw = reports
        gone = moment >= self._absence_counts_from_s and self._forget_all_but(reports.keys())
        if changed or gone:
            self._add_up()
        if changed or gone or turn != self._turn:
            self._turn = turn
            self._ceilings.clear()
        return served

    def lose(self) -> None:
        """Nothing is heard of the others any more; that they are there is remembered."""
        self._is_lost, self._fresh_until_s = True, float("-inf")

    def _take_in(self, process: str, raw: bytes, served: ServedWork) -> None:
        report, before = decode(raw), self._reports.pop(process, None)
        if report is not None:
            self._unreadable.discard(process)
            self._reports[process] = report
            if before is not None:
                _add_served(before, report, served)
        elif process not in self._unreadable:
            self._unreadable.add(process)
            log.warning("the report of process %s cannot be read; workers are shared out equally", process)

    def _forget_all_but(self, processes: Set[str]) -> bool:
        """Whether there were any to forget."""
        gone = set(self._names()) - processes - {self._process}
        for process in gone:
            self._reports.pop(process, None)
            self._unreadable.discard(process)
        return bool(gone)

    def _names(self) -> list[str]:
        return [self._process, *self._reports, *self._unreadable]

    def _add_up(self) -> None:
        self._workers = {}
        for report in self._reports.values():
            for worker, share in report.workers.items():
                self._workers[worker] = self._workers.get(worker, NOTHING) + share

    def _ceiling(self, worker: str, model: str, limit: int, of_long: bool) -> int:
        is_fresh = self.is_fresh
        key = (worker, limit, of_long, is_fresh)
        found = self._ceilings.get(key)
        if found is None:
            if is_fresh:
                found = self._work_out(worker, model, limit, of_long)
            else:
                found = blind_share(limit, self.processes, self._rank(self._names()))
            self._ceilings[key] = found
        return found

    def _work_out(self, worker: str, model: str, limit: int, of_long: bool) -> int:
        held, content, wanting = 0, [], [self._process]
        for process, report in self._reports.items():
            share, waiting = report.workers.get(worker, NOTHING), report.waiting.get(model, _NOBODY)
            holds = share.long_prefills if of_long else share.in_flight
            held += holds
            if waiting.for_long_prefill if of_long else waiting.for_place:
                wanting.append(process)
            else:
                content.append(holds)
        # The ranks move on by turns, for each worker otherwise: what cannot be divided goes round, and no
        # request whose length keeps time with the turns can hold it.
        rank = self._rank(wanting) + crc32(f"{worker} {self._turn}".encode())
        return ceiling(limit, held, content, len(wanting), rank % len(wanting))

    def _rank(self, processes: list[str]) -> int:
        return sorted(processes).index(self._process)


def _add_served(before: Report, report: Report, served: ServedWork) -> None:
    """What was served between two reports of one process. A sum that has fallen began anew."""
    for model, sums in report.served.items():
        sums_before = before.served.get(model, {})
        for tenant, work in sums.items():
            more = work - sums_before.get(tenant, 0.0)
            if more > 0:
                served[model, tenant] = served.get((model, tenant), 0.0) + more

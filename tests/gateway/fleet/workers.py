"""Workers of a fleet, and what others have there, for tests."""

from typing import Any

from gateway import settings
from gateway.estimates import AdaptiveLimit, Coefficients
from gateway.fleet import Fleet, Member
from gateway.peers import Others, Report, Waiting, WorkerShare, encode
from tests.gateway.test_model import Clock, job


class Workers:
    """A fleet of some workers for one model, each of them up, and what it told of free places."""

    def __init__(
        self,
        *ids: str,
        up: bool = True,
        most: int = 4,
        long: int = 1,
        others: Others | None = None,
        **rules: Any,
    ) -> None:
        """most: max_concurrency of each. long: max_long_prefills. others: those of `Elsewhere`."""
        self.clock = Clock()
        self.room: list[str] = []
        members = [Member(id, "small", most, up=up) for id in ids]
        self.fleet = Fleet(settings.Fleet(**rules), members, self.clock, long, others)
        self.fleet.on_room = self.room.append

    def __getitem__(self, id: str) -> Member:
        return self.fleet.members[id]

    def well(self) -> list[str]:
        return [of.id for of in self.fleet.workers(job())]


class Elsewhere:
    """Another process with the same workers."""

    def __init__(self) -> None:
        self.others = Others("here", Clock())

    def has(self, waiting: int = 0, long_waiting: int = 0, **shares: WorkerShare) -> None:
        """Some at each worker; and requests for "small" that wait, some of them long."""
        report = Report(shares, {"small": Waiting(waiting, long_waiting)})
        self.others.update({"elsewhere": encode(report)}, 0.0)


class NotingCoefficients(Coefficients):
    """Keeps what it is taught."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[tuple[int, int, float]] = []
        self.streams: list[tuple[int, float, float, int]] = []

    def first_token(self, ahead_tokens: int, own_tokens: int, waited_s: float) -> None:
        self.prompts.append((ahead_tokens, own_tokens, waited_s))

    def streamed(self, tokens: int, lasted_s: float, streams: float, prefilled_tokens: int) -> None:
        self.streams.append((tokens, lasted_s, streams, prefilled_tokens))


class NotingLimit(AdaptiveLimit):
    """Keeps what it is told."""

    def __init__(self, max_concurrency: int) -> None:
        super().__init__(max_concurrency)
        self.gaps: list[tuple[float, bool]] = []
        self.ticks: list[tuple[float, int]] = []

    def observe(self, gap_s: float, only_decoded: bool) -> None:
        self.gaps.append((gap_s, only_decoded))

    def tick(self, now_s: float, in_flight: int) -> int:
        self.ticks.append((now_s, in_flight))
        return super().tick(now_s, in_flight)

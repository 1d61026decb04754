"""The worker with the fewest requests; equals take turns."""

from collections.abc import Sequence
from operator import attrgetter

from gateway.model import Job, Worker
from gateway.routing.base import alternate


def least_requests(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
    return sorted(alternate(workers, turn), key=attrgetter("in_flight"))

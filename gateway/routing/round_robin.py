"""One after the other, whatever they hold."""

from collections.abc import Sequence

from gateway.model import Job, Worker
from gateway.routing.base import alternate


def round_robin(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
    return alternate(workers, turn)

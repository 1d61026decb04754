"""The worker that would have this request's first token out soonest, with something for what it decodes.

Join the shortest work, of which the request's own prompt is a part: where it is cached, that is less. So
affinity is weighed against load in one unit, and a popular prefix cannot bury the worker that has it.
"""

from collections.abc import Sequence

from gateway.model import Job, Worker
from gateway.routing.base import alternate


def least_work(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
    return sorted(alternate(workers, turn), key=seconds)


def seconds(worker: Worker) -> float:
    return worker.prefill_s + worker.own_s + worker.decode_s

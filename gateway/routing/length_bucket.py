"""The worker with the least work for this request; some are kept clear of long prompts.

What delays a first token is what its worker has yet to read, not how many requests it holds. While a worker
reads a long prompt, each of its steps is long, and without a threshold of its own nobody's turn comes before
the end. So of three workers or more one in SHARE is kept clear: not always the same, but whichever comes to
have no long prompt. A long prompt waits for the others, and for no more than SPILL_S: where there are
so many that they have to wait longer, they are what the workers are there for. Hard pools, by contrast, left
long prompts waiting 2.5 s at p99 beside idle workers, in place of 1 s (two H200s, 22 requests/s).
"""

from collections.abc import Sequence

from gateway.model import Job, Worker
from gateway.routing.base import alternate
from gateway.routing.least_work import seconds

LEAST_WORKERS = 3  # of two, one for long prompts alone is too little as soon as there are some
SHARE = 4
SPILL_S = 1.0


def length_bucket(job: Job, workers: Sequence[Worker], turn: int, waited_s: float) -> Sequence[Worker]:
    if job.is_long and len(workers) >= LEAST_WORKERS and waited_s < SPILL_S:
        clear = sum(not worker.long_prefills for worker in workers)
        if clear <= max(len(workers) // SHARE, 1):
            return ()
    return sorted(alternate(workers, turn), key=seconds)

"""Do requests wait inside a worker, where nobody may pass them? None should: an alarm, and nothing more.

Not what routing goes by: it is old by the time it is read, and what this gateway sends is known without it.
"""

import logging
import re

log = logging.getLogger(__name__)

SOME = 8  # may wait for the next step, as prompts that came together do
_WAITING = re.compile(r"^vllm:num_requests_waiting(?:\{.*\})? (\S+)$", re.MULTILINE)


class Backlog:
    """What one worker has waiting, at one look and the next."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._looks = 0  # in a row, at which too many waited

    def look(self, metrics: str) -> None:
        """metrics: the worker's, as Prometheus reads them. Two looks in a row raise the alarm, once."""
        waiting = sum(int(float(count)) for count in _WAITING.findall(metrics))  # of each engine
        if waiting > SOME:
            self._looks += 1
            if self._looks == 2:
                log.warning(
                    "worker %s keeps %d requests waiting inside it, where they are served first come, first "
                    "served: either others send to it, or its --max-num-seqs is less than its "
                    "max_concurrency in [[workers]], which should be lowered to that",
                    self._worker_id, waiting,
                )  # fmt: skip
        else:
            if self._looks >= 2:
                log.info("worker %s keeps none waiting any more", self._worker_id)
            self._looks = 0

"""Which workers of a model are long enough for a request? Asked only where some are shorter than others."""

from collections.abc import Mapping
from math import inf

from gateway.model import Job


class Contexts:
    """What each worker's --max-model-len is, as it last told. In tokens, prompt and output together."""

    def __init__(self) -> None:
        self._told: dict[str, Mapping[str, int]] = {}  # by worker: by model
        self._uneven: dict[str, tuple[int, int]] = {}  # by model: the shortest and the longest of its workers

    def note(self, worker_id: str, lengths: Mapping[str, int]) -> None:
        """lengths: of each model that the worker serves and of which it told."""
        self._told[worker_id] = lengths
        self._compare()

    def forget(self, worker_id: str) -> None:
        """A worker is there no longer."""
        if self._told.pop(worker_id, None) is not None:
            self._compare()

    def _compare(self) -> None:
        told = self._told.values()
        self._uneven = {}
        for model in {model for lengths in told for model in lengths}:
            all_lengths = [lengths[model] for lengths in told if model in lengths]
            if min(all_lengths) < max(all_lengths):
                self._uneven[model] = min(all_lengths), max(all_lengths)

    def least(self, job: Job) -> int:
        """What a worker must have for a request; 0: any will do.

        One that is too long for all goes to the longest, which counts its tokens and says so.
        """
        uneven = self._uneven.get(job.model)
        if uneven is None or job.context_tokens <= uneven[0]:
            return 0
        return min(job.context_tokens, uneven[1])

    def of(self, worker_id: str, model: str) -> float:
        """Infinite while the worker has not told: it is not kept from anything."""
        return self._told.get(worker_id, {}).get(model, inf)

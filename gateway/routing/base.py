"""What a policy is."""

from collections.abc import Sequence
from typing import Protocol

from gateway.model import Job, Worker


class Policy(Protocol):
    """Sort workers, best first, and leave none out: whoever cannot take the request is passed over later.

    turn: counts the requests that have been sent, for policies that alternate.
    """

    def __call__(self, job: Job, workers: Sequence[Worker], turn: int) -> Sequence[Worker]: ...


def alternate(workers: Sequence[Worker], turn: int) -> list[Worker]:
    """The workers in a circle, beginning at another one each turn."""
    start = turn % len(workers) if workers else 0
    return [*workers[start:], *workers[:start]]

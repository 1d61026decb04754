"""What a policy is."""

from collections.abc import Sequence
from typing import Protocol

from gateway.model import Job, Worker


class Policy(Protocol):
    """Sort workers, best first. Whichever has no room is passed over later.

    Left out are those that the request had better not have now, though they have room: it waits for others,
    and is asked for again when something changes. turn: counts the requests that have been sent, for
    policies that alternate. waited_s: by this request, for its turn.
    """

    def __call__(
        self, job: Job, workers: Sequence[Worker], turn: int, waited_s: float
    ) -> Sequence[Worker]: ...


def alternate(workers: Sequence[Worker], turn: int) -> list[Worker]:
    """The workers in a circle, beginning at another one each turn."""
    start = turn % len(workers) if workers else 0
    return [*workers[start:], *workers[:start]]

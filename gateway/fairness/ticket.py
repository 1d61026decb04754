"""What does the queue know of a request that waits?"""

import sys
from enum import Enum, auto
from typing import Generic, Literal, TypeVar

from msgspec import Struct

Band = Literal["interactive", "default", "batch"]
BANDS: tuple[Band, ...] = ("interactive", "default", "batch")  # first served first

PayloadT = TypeVar("PayloadT")


class State(Enum):
    """Where a ticket stands. It passes through these in order, or from WAITING straight to DONE."""

    NEW = auto()
    WAITING = auto()
    DISPATCHED = auto()
    DONE = auto()


class Ticket(Struct, Generic[PayloadT], eq=False):
    """A request's place in the queue; itself and nothing else is equal to it.

    Work is in any unit, seconds or tokens, as long as it is the same for all; times are of one clock.
    `order` and `state` are the queue's own.
    """

    tenant: str
    weight: float  # of the tenant, above 0
    band: Band
    model: str
    lane: int  # what may be closed for a while: see FairQueue.peek
    label: int  # by which it is counted, and nothing else
    prompt_work: float  # until the first token: what the order within a tenant goes by
    total_work: float  # to the end, an estimate: what the tenant is charged, until it is settled
    arrived_s: float  # what it ages by
    payload: PayloadT
    order: int = sys.maxsize  # the number of its push; before that it comes after all
    state: State = State.NEW

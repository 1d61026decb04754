"""Which band is served next? The highest that waits, but each lower one gets its share.

While a lower band waits it is owed its share of all work that is dispatched, and what it is given counts
against that. Once it is owed a whole ticket, that ticket goes before those of higher bands (deficit round
robin, Shreedhar and Varghese 1995). So of the work dispatched while a band waits it gets its share, less at
most the ticket that it is still saving for.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.fairness.band import TenantQueue
from gateway.fairness.ticket import BANDS, Band, Ticket

SHARES: Mapping[Band, float] = {"default": 0.2, "batch": 0.05}  # at least this, however busy higher bands are


class Schedule:
    """The order of one model's tickets."""

    def __init__(self, aging: float) -> None:
        self.bands: dict[Band, TenantQueue] = {band: TenantQueue(aging) for band in BANDS}
        self._owed = dict.fromkeys(SHARES, 0.0)

    @property
    def is_idle(self) -> bool:
        return all(queue.is_idle for queue in self.bands.values())

    def push(self, ticket: Ticket[Any]) -> None:
        self.bands[ticket.band].push(ticket)

    def remove(self, ticket: Ticket[Any]) -> None:
        self.bands[ticket.band].remove(ticket)
        self._cap()

    def dispatch(self, ticket: Ticket[Any]) -> None:
        for band, share in SHARES.items():
            if self.bands[band].is_waiting:
                self._owed[band] += share * ticket.total_work
        if ticket.band in SHARES:
            self._owed[ticket.band] = max(self._owed[ticket.band] - ticket.total_work, 0.0)
        self.bands[ticket.band].dispatch(ticket)
        self._cap()

    def settle(self, ticket: Ticket[Any], work: float) -> None:
        self.bands[ticket.band].settle(ticket, work)

    def served_elsewhere(self, tenant: str, work: float) -> None:
        for band in self.bands.values():
            band.served_elsewhere(tenant, work)

    def first(
        self, is_open: Callable[[int], bool], is_held: Callable[[str], bool] | None
    ) -> Ticket[Any] | None:
        for band, owed in self._owed.items():
            if owed:
                queue = self.bands[band]
                saved_for = queue.first(is_open, is_held)
                # All that waits is a running sum: of a single ticket it may be less by a rounding error.
                if saved_for and min(saved_for.total_work, queue.work) <= owed:
                    return saved_for
        for queue in self.bands.values():
            if queue.is_waiting and (ticket := queue.first(is_open, is_held)):
                return ticket
        return None

    def work_before(self, ticket: Ticket[Any]) -> float:
        """The work that goes before a ticket, waiting or still to come, if all is open and nobody comes."""
        own = self.bands[ticket.band].work_before(ticket)
        rank = BANDS.index(ticket.band)
        above = sum((self.bands[band].work for band in BANDS[:rank]), 0.0)
        if above:
            by_share = (own + ticket.total_work - self._owed[ticket.band]) / SHARES[ticket.band]
            if by_share < own + above:
                return max(by_share, own)  # in which the shares of other bands are contained
        return own + above + self._work_from_below(rank, own + above)

    def _work_from_below(self, rank: int, work: float) -> float:
        """What lower bands are given by their shares while this much work of others is done."""
        below = BANDS[rank + 1 :]
        shared = sum((SHARES[band] for band in below if self.bands[band].is_waiting), 0.0)
        total = work / (1 - shared)
        return sum(
            (min(self.bands[band].work, self._owed[band] + SHARES[band] * total) for band in below), 0.0
        )

    def _cap(self) -> None:
        """Nobody is owed more than waits: not what has left, nor hours in which its lane was closed."""
        for band in SHARES:
            self._owed[band] = min(self._owed[band], self.bands[band].work)

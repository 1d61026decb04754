"""In which order are waiting requests served, so that nobody waits for long behind others? Pure structures.

    queue = FairQueue[Waiter]()
    queue.push(ticket)                                  # also one that need not wait: it is charged, too
    while ticket := queue.peek("llama", is_open):       # best first, of the lanes that are open now
        queue.dispatch(ticket)
        ...
        queue.settle(ticket, work)                      # once it has ended, however

How many may wait is the caller's to decide, by len(queue), by_tenant, ahead(ticket) and victims().
A model's tickets are ordered by band (schedule.py), within a band by tenant (band.py), within a tenant by
size and wait (line.py). queue.py holds the models and the counts.
"""

from gateway.fairness.queue import FairQueue
from gateway.fairness.ticket import BANDS, Band, State, Ticket

__all__ = ["BANDS", "Band", "FairQueue", "State", "Ticket"]

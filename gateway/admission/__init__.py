"""When is it this request's turn? A bounded queue, fair between tenants, shortest first.

queue.py gives places to those who wait, entry.py says who may wait, turn.py is the lease on a place.
"""

from gateway.admission.queue import Admission
from gateway.admission.turn import Turn

__all__ = ["Admission", "Turn"]

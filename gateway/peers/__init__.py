"""What do processes and replicas that share workers tell each other, and what do they make of it?

Each has a queue of its own. What each has at every worker, and whether it has requests waiting, is told to
all; from that each works out how many places at a worker are its own for now. Nothing here waits: clocks
are handed in.
"""

from gateway.peers.others import Others, ServedWork
from gateway.peers.report import NOTHING, Report, Waiting, WorkerShare, encode
from gateway.peers.served import Served

__all__ = ["NOTHING", "Others", "Report", "Served", "ServedWork", "Waiting", "WorkerShare", "encode"]

"""How much work is a request, how much has a worker before it, and how much at once is best for it?

Nothing here waits or reads a clock: times are handed in. Seconds are seconds of one worker.
"""

from gateway.estimates.coefficients import Coefficients, Speed
from gateway.estimates.limits import FLOOR, AdaptiveLimit
from gateway.estimates.outputs import Outputs
from gateway.estimates.pace import Pace
from gateway.estimates.prefixes import Prefixes, chain
from gateway.estimates.work import Share, Work, WorkerLoad, prefill_cost

__all__ = [
    "FLOOR",
    "AdaptiveLimit",
    "Coefficients",
    "Outputs",
    "Pace",
    "Prefixes",
    "Share",
    "Speed",
    "Work",
    "WorkerLoad",
    "chain",
    "prefill_cost",
]

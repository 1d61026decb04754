"""Which worker is best for this request? Pure functions on snapshots.

A new policy is a file here and a line below.
"""

from gateway.routing.base import Policy
from gateway.routing.least_requests import least_requests
from gateway.routing.least_work import least_work
from gateway.routing.length_bucket import length_bucket
from gateway.routing.round_robin import round_robin

POLICIES: dict[str, Policy] = {
    "length_bucket": length_bucket,
    "least_work": least_work,
    "least_requests": least_requests,
    "round_robin": round_robin,
}

__all__ = ["POLICIES", "Policy"]

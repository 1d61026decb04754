"""How long does the caller have time to wait for a worker?"""

from math import inf

from gateway.model import Fields

# The read timeout of OpenAI's SDKs, in seconds: an answer that has not begun by then comes to nobody. And
# this gateway's own, for callers who would rather hear "no" soon.
UNITS_S = {b"x-stainless-read-timeout": 1.0, b"x-gateway-max-wait-ms": 0.001}


def max_wait_s(fields: Fields) -> float:
    """The least that a header says; what is no positive number says nothing."""
    least = inf
    for name, unit_s in UNITS_S.items():
        if name in fields:
            least = min(least, _seconds(fields[name], unit_s))
    return least


def _seconds(value: bytes, unit_s: float) -> float:
    try:
        seconds = float(value) * unit_s
    except ValueError:
        return inf
    return seconds if seconds > 0 else inf

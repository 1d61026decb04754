"""Does a body that is sent to us come on, and is its sender still there?"""

import asyncio
import select

LEAST_BYTES_PER_S = 1024  # on average: the slowest of mobile networks does better
_END = getattr(select, "POLLRDHUP", 0)  # beside what is always told: a reset. Only Linux tells of a mere end


class Pace:
    """How fast a body has to come.

    Between two reads there are at most `pause_s` seconds. And what has come by then, less the first
    `pause_s`, is LEAST_BYTES_PER_S or more: who sends a byte now and then holds no place for hours.
    """

    __slots__ = ("_began", "_bytes", "_latest", "_pause_s")

    def __init__(self, pause_s: float, now: float) -> None:
        self._pause_s = pause_s
        self._began = self._latest = now
        self._bytes = 0

    def note(self, size: int, now: float) -> None:
        """So many bytes have come."""
        self._bytes += size
        self._latest = now

    def left_s(self, now: float) -> float:
        """How long it may still take until more must have come; it is late if that is not above 0."""
        return self._pause_s + min(self._latest, self._began + self._bytes / LEAST_BYTES_PER_S) - now


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether whoever is at the other end has hung up, also if we have not read all that came before."""
    looking = select.poll()
    looking.register(transport.get_extra_info("socket").fileno(), _END)
    return bool(looking.poll(0))


def has_said_more(transport: asyncio.BaseTransport) -> bool:
    """Whether something of the other end waits to be read: bytes, or its end."""
    looking = select.poll()
    looking.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(looking.poll(0))

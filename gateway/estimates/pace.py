"""How fast does a queue drain?"""

KEPT = 0.98  # of what is known, at each request that ends: a memory of 50


class Pace:
    """How fast a model's places come free, in requests and in work.

    Little's law: among so many places in use, one comes free each so-manieth of the time for which a request
    holds one (J. D. C. Little, A Proof for the Queuing Formula L = λW, 1961). That time is known before
    anybody had to wait. The time between two departures is not, and misleads: they come in clumps, and with
    long pauses where it is this process that is busy.
    """

    __slots__ = ("_held_s", "_in_use", "_requests", "_work")

    def __init__(self) -> None:
        self._in_use = 0
        self._requests = self._work = self._held_s = 0.0  # sums over those that ended, fading

    def take(self) -> None:
        """A place was taken."""
        self._in_use += 1

    def give_back(self, held_s: float, work: float) -> None:
        """A place came free after held_s. work: what was done there; 0 tells nothing and is not learnt."""
        self._in_use -= 1
        if work:
            self._requests = self._requests * KEPT + 1.0
            self._work = self._work * KEPT + work
            self._held_s = self._held_s * KEPT + held_s

    def seconds_for(self, work: float, places: int = 0) -> float:
        """Until so much has come to its turn. 0 while nothing is known.

        places: that there are, if that is known. While they fill, which takes a moment, more come to their
        turn than as many as are given back by those that are in use so far.
        """
        return work * self._held_s / (self._work * self._places(places)) if self._work else 0.0

    def seconds_for_requests(self, count: int, places: int = 0) -> float:
        return count * self._held_s / (self._requests * self._places(places)) if self._requests else 0.0

    def _places(self, places: int) -> int:
        return max(self._in_use, places, 1)

"""Is a worker fit for requests? What those that were sent to it tell of that.

Outlier detection as in Envoy: so many failures in a row eject a worker for a while, longer each time. When
that is over, one request is its trial. What is not its fault counts for nothing.
"""

from math import inf

WELL, AVOIDED, EJECTED = range(3)  # standings, the best first

MOST_EJECTION_S = 300.0
FORGIVEN_AFTER_S = 300.0  # without a failure, its next ejection is as short as its first
WARM_UP_S = 30.0
COLD = 0.1  # of its limit is what a worker begins with: its caches are empty, its kernels perhaps not built


class Health:
    """Of one worker, as one process sees it. Times are seconds of a monotonic clock.

    An avoided worker gets what the others have no room for: it said that it is busy, or it fails and cannot
    be spared.
    """

    __slots__ = (
        "_avoided_until", "_ejections", "_warm_from", "_well_since", "ejected_until", "failed", "is_tried",
    )  # fmt: skip

    def __init__(self) -> None:
        self.failed = 0  # requests in a row
        self.ejected_until = 0.0  # 0: it is not ejected. In the past: it is on trial
        self.is_tried = False  # the request that is its trial is under way
        self._avoided_until = 0.0  # 0: it is not
        self._ejections = 0
        self._well_since = 0.0
        self._warm_from = -inf

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to be said of it: it is well, and stays so unless something happens."""
        return not (self.ejected_until or self._avoided_until)

    def standing(self, now_s: float) -> int:
        """WELL, AVOIDED or EJECTED."""
        if self.ejected_until > now_s or self.is_tried:
            return EJECTED
        return AVOIDED if self._avoided_until > now_s else WELL

    def is_on_trial(self, now_s: float) -> bool:
        """Whether its ejection is over and its next request is to show what it is worth."""
        return 0.0 < self.ejected_until <= now_s

    def part(self, now_s: float) -> float:
        """Of its limit, how much it may have while it warms up. 1: all."""
        return min(COLD + (1 - COLD) * (now_s - self._warm_from) / WARM_UP_S, 1.0)

    def warm_up(self, now_s: float) -> None:
        """From now on it has its limit by and by."""
        self._warm_from = now_s

    def fail(self, now_s: float, most: int, ejection_s: float, can_be_spared: bool) -> float:
        """A request failed by its fault. Returns for how many seconds it is ejected from now on, mostly 0.

        most: failures in a row that eject it; in its trial, one does. ejection_s: how long the first time.
        """
        if self.ejected_until > now_s:
            return 0.0  # what it had from before
        self.failed += 1
        if self.failed < most and not self.ejected_until:
            return 0.0
        for_s = min(ejection_s * 2.0 ** min(self._ejections, 16), MOST_EJECTION_S)
        self._ejections += 1
        self._well_since = now_s + for_s
        self.failed = most - 1  # it gets another chance after that, not three
        self.is_tried = False
        if can_be_spared:
            self.ejected_until = now_s + for_s
            return for_s
        self.ejected_until = 0.0
        self.avoid(now_s + for_s)
        return 0.0

    def avoid(self, until_s: float) -> None:
        """Others come first."""
        self._avoided_until = max(self._avoided_until, until_s)

    def pass_trial(self) -> None:
        """Its answer to the request that was its trial has begun."""
        self.ejected_until = 0.0
        self.is_tried = False

    def succeed(self) -> None:
        """A request ended well, after some had failed."""
        self.failed = 0
        self._avoided_until = 0.0

    def tick(self, now_s: float) -> None:
        """To be called about once a second."""
        if self._avoided_until <= now_s:
            self._avoided_until = 0.0
        if self._ejections and not self.failed and now_s - self._well_since >= FORGIVEN_AFTER_S:
            self._ejections = 0

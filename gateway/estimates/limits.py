"""How many requests at once is a worker best given?

More streams at once are more tokens a second, up to a point: on an H200 128 streams gave 12,441 and 256
gave 10,059. The limit rises while it is what holds requests back, and falls by a part while the worker is
beyond that point (additive increase, multiplicative decrease: Chiu and Jain 1989). The sign is the time
between two tokens of a stream, not that of a whole request, which tells mostly how long its answer is.
"""

from collections.abc import Sequence

from gateway.estimates.coefficients import Speed
from gateway.estimates.line import Line
from gateway.tally import Tally

START = 128  # from the floor a burst would wait for seconds; from far above it takes long to come down
FLOOR = 8  # fewer at once leave the worker idle between them
WINDOW_S = 1.0
WINDOWS = 2  # in a row that must be bad: one may be chance
MIN_GAPS = 20  # a window with fewer tells nothing
RISE = 2
FALL = 0.9
REACHED = 0.9  # of the limit: not all may be in use at one moment, in every process
LOW_LOAD = 1 / 8  # of the ceiling: so few streams do not slow each other down by much
SLOWED_TO = 2.0  # times the gap at low load, before streams are held to be too many
WORTHLESS = 0.9  # of the gap grows with the streams: twice as many would give 7 % more tokens, or fewer
HELD = 0.02  # weight of the present line of gaps: the limit moves little, so each window's turn of it counts

_CLASS = 1.03  # classes of gaps; within one they are taken to lie evenly
_BOUNDS = tuple(0.001 * _CLASS**n for n in range(312))  # to 10 s


class AdaptiveLimit:
    """Of one worker. `limit` is between the floor and max_concurrency, or that where it is lower.

    target_s: what 9 of 10 gaps between tokens are to stay below, whatever makes them long. Without it the
    limit seeks the most tokens a second: it falls only where gaps are twice those at low load *and* what they
    grow by eats up what more streams bring. Either alone has other causes: long contexts, or noise.
    """

    def __init__(self, max_concurrency: int, target_s: float | None = None, floor: int = FLOOR) -> None:
        self._floor = floor
        self._target_s = target_s
        self.set_most(max_concurrency)
        self._low_load_s = 0.0  # the gap while there are few streams; 0: not known
        self._line = _new_line()
        self._gaps = Tally(_BOUNDS)
        self._began_s: float | None = None
        self._bad = 0  # windows in a row

    def set_most(self, max_concurrency: int) -> None:
        """Another ceiling from now on. What was learnt of the best limit is learnt anew."""
        self._most = max_concurrency
        self._least = min(self._floor, max_concurrency)
        self.limit = max(self._least, min(START, max_concurrency))

    def observe(self, gap_s: float, only_decoded: bool) -> None:
        """A stream's token came `gap_s` after the one before it.

        only_decoded: the worker had no prompt to prefill in between. Other gaps say nothing of how many
        streams it can run, and count against a target alone.
        """
        if only_decoded or self._target_s is not None:
            self._gaps.add(gap_s)

    def tick(self, now_s: float, in_flight: int) -> int:
        """The limit from now on. Call it about once a second; a call too early changes nothing.

        in_flight: the most requests that the worker had at once since the last time.
        """
        if self._began_s is None:
            self._began_s = now_s
        elif now_s - self._began_s >= WINDOW_S:
            self._began_s = now_s
            crowded = self._is_crowded(in_flight)
            self._gaps = Tally(_BOUNDS)
            self._move(crowded, in_flight)
        return self.limit

    def _move(self, crowded: bool, in_flight: int) -> None:
        if in_flight > self.limit:
            self._bad = 0  # those above the last, lower limit have yet to leave
            return
        self._bad = self._bad + 1 if crowded else 0
        if self._bad >= WINDOWS:
            self._bad = 0
            self.limit = max(self._least, int(in_flight * FALL))
        elif not crowded and in_flight >= self.limit * REACHED:
            self.limit = min(self._most, self.limit + RISE)

    def _is_crowded(self, in_flight: int) -> bool:
        counts = self._gaps.counts
        if sum(counts) < MIN_GAPS:
            return False
        if self._target_s is not None:
            return _quantile(counts, 0.9) > self._target_s
        median_s = _quantile(counts, 0.5)
        if in_flight >= self.limit / 2:  # gaps grow faster among many streams: no line through few and many
            self._line.learn(in_flight, median_s)
        if in_flight <= max(self._least, self._most * LOW_LOAD):
            self._learn_low_load(median_s)
        growing_s = self._line.slope * in_flight
        if growing_s < WORTHLESS * (self._line.floor + growing_s):
            return False
        return _quantile(counts, 0.9) > SLOWED_TO * self._low_load_s

    def _learn_low_load(self, gap_s: float) -> None:
        """The best that was seen, forgotten as others come: quick down, slow up."""
        known_s = self._low_load_s or gap_s
        self._low_load_s = known_s + (0.3 if gap_s < known_s else 0.05) * (gap_s - known_s)


def _new_line() -> Line:
    speed = Speed()
    return Line(speed.step_s, speed.decode_token_s, held=HELD)


def _quantile(counts: Sequence[int], part: float) -> float:
    left = part * sum(counts)
    for index, count in enumerate(counts[:-1]):
        if count and left <= count:
            lower = _BOUNDS[index] / _CLASS
            return lower + (_BOUNDS[index] - lower) * left / count
        left -= count
    return _BOUNDS[-1]

"""Which straight line do noisy observations lie on, lately?"""

KEPT = 0.95  # of what is known, at each observation: a memory of 20
HELD = 1.0  # observations that the present line weighs: what they do not tell stays as it was
MOST_FACTOR = 2.0  # by which one observation may differ from the line; beyond, it counts as that far off
LEAST = 1e-3  # of its start, that either term may come to


class Line:
    """y = floor + slope * x, for x >= 0 and y > 0; neither term is ever negative or zero.

    Least squares of the relative error with exponential forgetting (recursive least squares: Ljung, System
    Identification, ch. 11), in units of the start, so that milliseconds and minutes weigh alike. In place
    of a prior there is a pull to the line of the moment before: without it, observations of one size would
    leave the line free to turn about them; with a pull to the start it would never quite arrive.
    Observations far off the line are brought nearer first (Huber's winsorising), so that no stalled
    request moves it by more than one doubled.
    """

    __slots__ = (
        "_floor",
        "_floor_floor",
        "_floor_slope",
        "_held",
        "_seen_floor",
        "_seen_slope",
        "_slope",
        "_slope_slope",
        "_start_floor",
        "_start_slope",
    )

    def __init__(self, floor: float, slope: float, held: float = HELD) -> None:
        """The line to begin with, both > 0. held: weight of the present line, in observations."""
        self._held = held
        self._start_floor = floor
        self._start_slope = slope
        self._floor = self._slope = 1.0  # multiples of the start
        self._floor_floor = self._floor_slope = self._slope_slope = 0.0  # sums of products of the terms
        self._seen_floor = self._seen_slope = 0.0  # and of the terms with what was observed

    @property
    def floor(self) -> float:
        return self._floor * self._start_floor

    @property
    def slope(self) -> float:
        return self._slope * self._start_slope

    def learn(self, x: float, y: float, weight: float = 1.0) -> None:
        """weight: 0 to 1, how far the observation is to be trusted."""
        start = self._start_floor + self._start_slope * x
        share = self._start_slope * x / start  # of the slope in what was expected at the start
        rest = 1.0 - share
        line = self._slope * share + self._floor * rest
        seen = y / start
        if seen > line * MOST_FACTOR:
            seen = line * MOST_FACTOR
        elif seen < line / MOST_FACTOR:
            seen = line / MOST_FACTOR
        of_slope, of_floor = weight * share, weight * rest
        self._slope_slope = self._slope_slope * KEPT + of_slope * share
        self._floor_slope = self._floor_slope * KEPT + of_slope * rest
        self._floor_floor = self._floor_floor * KEPT + of_floor * rest
        self._seen_slope = self._seen_slope * KEPT + of_slope * seen
        self._seen_floor = self._seen_floor * KEPT + of_floor * seen
        self._solve()

    def _solve(self) -> None:
        held, mixed = self._held, self._floor_slope
        slopes, floors = self._slope_slope + held, self._floor_floor + held
        slope_seen, floor_seen = self._seen_slope + held * self._slope, self._seen_floor + held * self._floor
        scale = slopes * floors - mixed * mixed
        slope = (floors * slope_seen - mixed * floor_seen) / scale
        floor = (slopes * floor_seen - mixed * slope_seen) / scale
        if slope < LEAST:  # the best line falls: then the best one that does not
            slope, floor = LEAST, (floor_seen - mixed * LEAST) / floors
        elif floor < LEAST:
            slope, floor = (slope_seen - mixed * LEAST) / slopes, LEAST
        self._slope, self._floor = slope, floor

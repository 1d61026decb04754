"""How much has this process served of late, and for whom?"""

RECENT_S = 60.0
MOST = 256  # pairs of model and tenant in a report


class Served:
    """Work by model and tenant: sums that only rise.

    A pair that was not served for a minute is forgotten, and so is the one served longest ago when there are
    more than 256. It begins again at nothing: whoever reads takes what comes anew as served since.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[float, float]] = {}  # work, served last at; longest ago first

    def add(self, model: str, tenant: str, work: float, now_s: float) -> None:
        """Work that is done, in the queue's unit. Less than nothing is passed over: sums must not fall."""
        if work <= 0:
            return
        done, _ = self._sums.pop((model, tenant), (0.0, 0.0))
        self._sums[model, tenant] = (done + work, now_s)
        if len(self._sums) > MOST:
            self._forget_first()

    def recent(self, now_s: float) -> dict[str, dict[str, float]]:
        """The sums as a report tells them: by model and tenant."""
        while self._sums and next(iter(self._sums.values()))[1] < now_s - RECENT_S:
            self._forget_first()
        told: dict[str, dict[str, float]] = {}
        for (model, tenant), (work, _) in self._sums.items():
            told.setdefault(model, {})[tenant] = work
        return told

    def _forget_first(self) -> None:
        del self._sums[next(iter(self._sums))]

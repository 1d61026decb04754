"""Is a series flat or growing? A line through its second half, and its peaks early and late."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression
from typing import Any

GROWTH = 0.02  # of its mean, over the second half, that is still flat
# What may come and go with the load, by the beginning of a series' name.
NOISE: Mapping[str, float] = {
    "RSS": 1.0, "PSS": 1.0, "files": 12.0, "sockets": 12.0, "keys": 6.0, "memory of Redis": 0.5,
}  # fmt: skip
FEWEST = 8  # looks, for any verdict


class TooShort(Exception):
    """There are too few looks to tell."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Of one series, in its own unit.

    growth: of the line through the second half, from its beginning to its end.
    rise: from the most of the second quarter to the most of the last.
    bound: above which either is more than noise.
    """

    name: str
    mean: float
    growth: float
    rise: float
    bound: float

    @property
    def is_growing(self) -> bool:
        """Both say so: a single burst late lifts a peak, and one early lowers the line."""
        return self.growth > self.bound and self.rise > self.bound

    def kept(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "mean": self.mean,
            "growth over the second half": self.growth,
            "rise of the peak": self.rise,
            "bound": self.bound,
            "is_growing": self.is_growing,
        }


def trend(name: str, at_s: Sequence[float], values: Sequence[float]) -> Trend:
    """Raises TooShort."""
    if len(values) < FEWEST:
        raise TooShort(f"{len(values)} looks are too few, {FEWEST} are needed: let it run for longer")
    half, quarter = len(values) // 2, len(values) // 4
    late = values[half:]
    slope, _ = linear_regression(at_s[half:], late)
    mean = fmean(late)
    return Trend(
        name,
        mean,
        slope * (at_s[-1] - at_s[half]),
        max(values[-quarter:]) - max(values[quarter:half]),
        max(GROWTH * mean, noise(name)),
    )


def noise(name: str) -> float:
    return next((amount for start, amount in NOISE.items() if name.startswith(start)), 0.0)


def trends(at_s: Sequence[float], looks: Sequence[Mapping[str, float]]) -> list[Trend]:
    """Of each series that every look has. Raises TooShort."""
    names = [name for name in looks[0] if all(name in look for look in looks)] if looks else []
    return [trend(name, at_s, [look[name] for look in looks]) for name in names]

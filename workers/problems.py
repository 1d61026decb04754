"""What is wrong with a fleet, and what should be done about it?"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

MAX_SHOWN_VALUE = 80


# Marks a value that is absent or not to be shown.
MISSING = object()


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: the field's path in the file, the value found there, what is allowed instead."""

    path: str
    remedy: str
    value: object = MISSING

    def __str__(self) -> str:
        if self.value is MISSING:
            return f"{self.path}: {self.remedy}"
        shown = json.dumps(self.value, default=str, ensure_ascii=False)
        if len(shown) > MAX_SHOWN_VALUE:
            shown = shown[: MAX_SHOWN_VALUE - 1] + "…"
        return f"{self.path} = {shown}: {self.remedy}"


class Refused(Exception):
    """The fleet cannot be planned or started; carries every problem found, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        # Each once: a fault in [defaults] is found by every worker that inherits it.
        self.problems = tuple({str(problem): problem for problem in problems}.values())
        super().__init__("\n".join(map(str, self.problems)))

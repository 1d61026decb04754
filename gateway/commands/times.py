"""How are times written on the command line? 45m and 30d, 2027-01-31 and 2027-01-31T12:00:00Z."""

import re
import time
from datetime import UTC, date, datetime

import click

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")


def duration_s(text: str) -> float:
    """Raises click.BadParameter."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise click.BadParameter(f'"{text}" is no length of time. Write 30d, 12h, 45m or 30s.')
    return float(int(found[1]) * UNITS_S[found[2]])


def moment(text: str) -> float:
    """A time in seconds since 1970, given as its distance from now, a date, or a date and time.

    Raises click.BadParameter.
    """
    if _DURATION.fullmatch(text):
        return int(time.time()) + duration_s(text)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None and _is_date(text):
            found = found.replace(tzinfo=UTC)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(
            f'"{text}" is no time that has its zone. Write 30d, 12h or 45m from now, a date, which begins in '
            "UTC, as 2027-01-31, or 2027-01-31T12:00:00Z."
        )
    return found.timestamp()


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def shown(at: float | None) -> str:
    """In UTC, to the second; "never" for None."""
    return "never" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

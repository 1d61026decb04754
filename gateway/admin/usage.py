"""Usage over the admin API: what was used, by whom, of which model, and how it ended."""

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal, Protocol, get_args

from pydantic import BeforeValidator, Field

from gateway.admin.operations import Asked, Operation, Operations, Shown
from gateway.errors import BadRequest
from gateway.settings import Section
from gateway.settings.values import Identifier
from gateway.usage import Report, UsageRow, dimensions

DAYS = 7  # that are told unless others are asked for


class UsageSource(Protocol):
    """What is needed of the meter."""

    async def report(self, first: date, last: date, tenant: str | None = None) -> list[UsageRow]:
        """Of these UTC days, both included. Raises StoreUnavailable."""
        ...


def _day(value: str) -> date:
    if re.fullmatch(r"[12]\d{3}-\d\d-\d\d", value, re.ASCII):
        with contextlib.suppress(ValueError):  # the 31st of November
            return date.fromisoformat(value)
    raise ValueError("must be a day, as 2026-11-30")


Day = Annotated[date, BeforeValidator(_day)]
Dimension = Literal["day", "tenant", "key", "model", "outcome"]
Dimensions = Annotated[tuple[Dimension, ...], BeforeValidator(dimensions)]


class UsageQuery(Section):
    first: Day | None = Field(None, alias="from")
    """The first day, in UTC. Left out: six days before the last."""
    last: Day | None = Field(None, alias="to")
    """The last day, in UTC. Left out: today."""
    tenant: Identifier | None = None
    """Only this tenant's usage."""
    by: Dimensions = get_args(Dimension)
    """What sums are told apart by, with commas between."""


class UsageTotal(Shown):
    requests: int
    prompt_tokens: int
    cached_tokens: int
    """Those of the prompt tokens that a worker had in its prefix cache."""
    completion_tokens: int


class Usage(UsageTotal):
    """A sum over whatever is null."""

    day: date | None = None
    tenant: str | None = None
    key: str | None = None
    """The id of a key."""
    model: str | None = None
    outcome: str | None = None
    """How the requests ended: "ok", the code of an error, or how the caller left."""


class UsageList(Shown):
    object: Literal["list"] = "list"
    data: list[Usage]
    total: UsageTotal


class Metering:
    """clock: seconds since 1970."""

    def __init__(self, usage: UsageSource, clock: Callable[[], float]) -> None:
        self._usage = usage
        self._clock = clock

    def operations(self) -> Operations:
        yield Operation("listUsage", "GET", "/admin/usage", self.report, UsageQuery, UsageList)

    async def report(self, asked: Asked[UsageQuery]) -> UsageList:
        """Requests and tokens of some days, summed as asked.

        What other processes counted within the last second may be missing.
        """
        wanted = asked.fields
        last = wanted.last or datetime.fromtimestamp(self._clock(), UTC).date()
        first = wanted.first or last - timedelta(days=DAYS - 1)
        if first > last:
            raise BadRequest("query.from is after query.to. Exchange them.", param="from")
        report = Report.of(await self._usage.report(first, last, wanted.tenant), wanted.by)
        return UsageList.model_validate({"data": report.data, "total": report.total})

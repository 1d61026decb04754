"""What can be done over the admin API? Rows of one table; pages and document are both made from it."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.routing import Route

from gateway.admin.fields import from_body, from_query
from gateway.errors import GatewayError
from gateway.pages import Page, Reply, Show, Visit
from gateway.settings import Section

log = logging.getLogger(__name__)


SHOWN = ConfigDict(
    frozen=True,
    use_attribute_docstrings=True,
    defer_build=True,
    json_schema_serialization_defaults_required=True,  # as they are always there
)


class Shown(BaseModel):
    """Base of what is answered. Its schema leaves room for fields that later versions add."""

    model_config = SHOWN


class Nothing(Section):
    """No field at all."""


TakenT = TypeVar("TakenT", bound=Section)
GivenT = TypeVar("GivenT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Asked(Generic[TakenT]):
    """What was sent. id: from the path; "" where that has none."""

    id: str
    fields: TakenT


@dataclass(frozen=True, slots=True)
class Operation(Generic[TakenT, GivenT]):
    """One method of one path. The docstring of what carries it out is its description.

    name: of the function in a client. takes: the body of a POST or PUT, else the query. also: statuses of
    refusals that not every operation has.
    """

    name: str
    method: str
    path: str
    carry_out: Callable[[Asked[TakenT]], Awaitable[GivenT]]
    takes: type[TakenT]
    gives: type[GivenT]
    status: int = 200
    also: tuple[int, ...] = ()

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT")

    async def show(self, visit: Visit) -> Reply:
        if self.has_body:  # an empty PUT would reset what it meant to change
            fields = await from_body(visit, self.takes, may_be_empty=self.method == "POST")
        else:
            fields = from_query(visit, self.takes)
        try:
            given = await self.carry_out(Asked(visit.scope["path_params"].get("id", ""), fields))
        except GatewayError as error:
            if error.detail:
                log.warning("request %s: %s", visit.id, error.detail)
            raise
        return Reply(given.model_dump_json().encode(), self.status)


Operations = Iterable[Operation[Any, Any]]


def routes(operations: Operations) -> Iterator[Route]:
    by_path: dict[str, dict[str, Show]] = {}
    for of in operations:
        by_path.setdefault(of.path, {})[of.method] = of.show
    for path, shows in by_path.items():
        yield Route(path, Page(**shows))

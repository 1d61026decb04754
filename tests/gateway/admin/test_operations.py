"""Does an operation read what belongs to its method, and answer with what it was given?"""

from typing import Any

import pytest

from gateway.admin.operations import Asked, Operation, Shown, routes
from gateway.errors import Conflict
from gateway.pages import Page, Visit
from gateway.settings import Section
from tests.gateway.test_asgi import JSON, Asgi, part


class Taken(Section):
    count: int = 0


class Given(Shown):
    id: str
    count: int
    nothing: None = None


async def carry_out(asked: Asked[Taken]) -> Given:
    return Given(id=asked.id, count=asked.fields.count)


def operation(method: str, path: str = "/a", **more: Any) -> Operation[Taken, Given]:
    return Operation("name", method, path, carry_out, Taken, Given, **more)


def visit_with(body: bytes, query: bytes = b"", **path_params: str) -> Visit:
    asgi = Asgi(part(body), headers=(JSON,), query_string=query, path_params=path_params)
    return Visit(asgi.scope, asgi.receive)


@pytest.mark.parametrize(("method", "count"), [("GET", 2), ("DELETE", 2), ("POST", 1), ("PUT", 1)])
async def test_fields_come_from_the_body_where_there_is_one_else_from_the_query(
    method: str, count: int
) -> None:
    class Text(Section):
        count: str

    async def tell(asked: Asked[Text]) -> Given:
        return Given(id="", count=int(asked.fields.count))

    of = Operation("name", method, "/a", tell, Text, Given)
    reply = await of.show(visit_with(b'{"count": "1"}', b"count=2"))
    assert reply.content == b'{"id":"","count":%d,"nothing":null}' % count


async def test_the_id_comes_from_the_path() -> None:
    reply = await operation("POST", status=201).show(visit_with(b'{"count": 3}', id="w0"))
    assert (reply.status, reply.content) == (201, b'{"id":"w0","count":3,"nothing":null}')


async def test_only_a_post_may_come_without_a_body() -> None:
    assert (await operation("POST").show(visit_with(b""))).content == b'{"id":"","count":0,"nothing":null}'
    with pytest.raises(Exception, match="not valid JSON"):
        await operation("PUT").show(visit_with(b""))


@pytest.mark.parametrize(("detail", "lines"), [("", 0), ("disk full", 1)])
async def test_what_only_the_operator_may_read_is_logged(
    detail: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(asked: Asked[Taken]) -> Given:
        raise Conflict("No.", detail=detail)

    with pytest.raises(Conflict):
        await Operation("name", "POST", "/a", refuse, Taken, Given).show(visit_with(b""))
    assert len(caplog.records) == lines


def test_operations_of_one_path_share_a_page() -> None:
    made = list(routes([operation("GET"), operation("POST", "/b"), operation("POST"), operation("PUT")]))
    assert [route.path for route in made] == ["/a", "/b"]
    assert [list(page.shows) for page in (route.app for route in made) if isinstance(page, Page)] == [
        ["GET", "POST", "PUT"],
        ["POST"],
    ]

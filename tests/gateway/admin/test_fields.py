"""Is a body or a query read strictly, and is every problem named?"""

import json
from datetime import UTC, datetime
from typing import Annotated

import pytest
from pydantic import Field
from starlette.types import Message

from gateway.admin.fields import MAX_BODY_BYTES, MOST_PARAMETERS, MOST_PROBLEMS, from_body, from_query
from gateway.errors import BadRequest, BodyTooLarge, GatewayError, UnsupportedMediaType, UploadTooSlow
from gateway.pages import Visit
from gateway.settings import Section
from gateway.settings.values import AwareTime, Identifier
from tests.gateway.test_asgi import GONE, JSON, Asgi, part


class Sample(Section):
    name: Identifier
    """Its name."""
    count: Annotated[int, Field(ge=1)] = 1
    """How
    many."""
    until: AwareTime | None = None
    """When it ends."""
    first: str | None = Field(None, alias="from")
    """Where it begins."""
    names: Annotated[tuple[Identifier, ...], Field(max_length=3)] = ()
    """Further names."""


A = Sample.model_validate({"name": "a"})


class Choices(Section):
    tenant: str = ""


def visit_with(
    *messages: Message, headers: tuple[tuple[bytes, bytes], ...] = (JSON,), query: str = ""
) -> Visit:
    asgi = Asgi(*messages, headers=headers, query_string=query.encode("latin-1"))
    return Visit(asgi.scope, asgi.receive)


async def read(content: object, **more: object) -> Sample:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await from_body(visit_with(part(body)), Sample, may_be_empty=False)


async def problem(content: object) -> GatewayError:
    with pytest.raises(BadRequest) as caught:
        await read(content)
    return caught.value


# Bodies


async def test_a_body_becomes_its_model() -> None:
    sample = await read({"name": "a", "count": 2, "until": "2027-01-31T00:00:00Z", "from": "b"})
    assert (sample.name, sample.count, sample.first) == ("a", 2, "b")
    assert sample.until == datetime(2027, 1, 31, tzinfo=UTC)


async def test_a_body_may_come_in_parts() -> None:
    visit = visit_with(part(b'{"na', more=True), part(b"", more=True), part(b'me": "a"}'))
    assert await from_body(visit, Sample, may_be_empty=False) == A


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"count": 1}, "name", "body.name: missing; add it. Its name."),
        ({"name": "a", "count": 0}, "count", "body.count = 0: must be at least 1. How many."),
        ({"name": "a", "count": "1"}, "count", 'body.count = "1": must be a whole number. How many.'),
        ({"name": "a", "count": True}, "count", "body.count = true: must be a whole number. How many."),
        ({"name": "a", "count": 1.5}, "count", "body.count = 1.5: must be a whole number. How many."),
        ({"name": "a b"}, "name", 'body.name = "a b": must be 1 to 64 letters, digits or . _ -. Its name.'),
        ({"name": "a", "nmae": 1}, "nmae", "body.nmae: unknown field; did you mean name?"),
        (
            {"name": "a", "first": "x"},
            "first",
            "body.first: unknown field; known: count, from, name, names, ",
        ),
        ({"name": "a", "from": 1}, "from", "body.from = 1: must be text, in quotes. Where it begins."),
        ({"name": "a", "names": ["b", 1]}, "names", "body.names[1] = 1: must be text, in quotes. Further"),
        ({"name": "a", "until": 1}, "until", "body.until = 1: must be a date and time, as 2027-01-31T00:00"),
        ({"name": "a", "until": "2027-01-31"}, "until", "must be a date and time, as 2027-01-31T00:00:00Z."),
        ({"name": "a", "until": "2027-01-31T00:00:00"}, "until", "must have a timezone, as 2027-01-31T00:"),
        ({"name": "a", "\n": 1}, "\n", 'body."\\n": unknown field'),
    ],
)
async def test_a_field_at_fault_is_named_with_what_it_may_be(
    fields: dict[str, object], param: str, text: str
) -> None:
    error = await problem(fields)
    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert text in error.message
    assert "\n" not in error.message


async def test_a_kind_of_problem_that_is_not_foreseen_is_told_in_the_words_of_the_library() -> None:
    error = await problem({"name": "a", "names": list("abcd")})
    assert error.message.startswith('body.names = ["a", "b", "c", "d"]: Tuple should have at most 3 items')


async def test_all_problems_are_told_at_once_each_on_its_line() -> None:
    error = await problem({"name": "", "count": 0, "other": 1})
    assert [line.partition(" ")[0] for line in error.message.splitlines()] == [
        "body.name",
        "body.count",
        "body.other:",
    ]


async def test_however_much_is_wrong_the_answer_stays_short() -> None:
    error = await problem({"name": "a"} | {f"{index:0>10000}": 1 for index in range(50)})
    assert len(error.message.splitlines()) == MOST_PROBLEMS
    assert len(error.message) < 200 * MOST_PROBLEMS
    assert len(error.param or "") <= 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"x",
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"name":"a"} {}',
        b'{"a":' * 10_000,
        b"{'name': 'a'}",
    ],
)
async def test_what_is_no_json_is_told_so(body: bytes) -> None:
    error = await problem(body)
    assert (error.status, error.code, error.param) == (400, "invalid_json", None)


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"name"', b"NaN"])
async def test_a_body_must_be_an_object(body: bytes) -> None:
    error = await problem(body)
    assert (error.status, error.code) == (400, "invalid_type")


async def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_refused() -> None:
    filler = b" " * (MAX_BODY_BYTES - len(b'{"name":"a"}'))
    assert await read(b'{"name":"a"}' + filler) == A
    with pytest.raises(BodyTooLarge):
        await read(b'{"name":"a"} ' + filler)


async def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    half = part(b" " * (MAX_BODY_BYTES // 2 + 1), more=True)
    with pytest.raises(BodyTooLarge):  # and what was sent then is left alone
        await from_body(visit_with(half, half), Sample, may_be_empty=False)


@pytest.mark.parametrize(
    "value",
    [b"application/json", b"application/json; charset=utf-8", b"APPLICATION/JSON", b" application/json ;a"],
)
async def test_json_is_read_under_any_spelling_of_its_type(value: bytes) -> None:
    visit = visit_with(part(b'{"name":"a"}'), headers=((b"content-type", value),))
    assert await from_body(visit, Sample, may_be_empty=False) == A


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"content-type", b"text/plain"),),
        ((b"content-type", b"application/x-www-form-urlencoded"),),
        (JSON, (b"content-encoding", b"gzip")),
    ],
)
async def test_another_type_or_encoding_is_refused(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    with pytest.raises(UnsupportedMediaType):
        await from_body(visit_with(part(b'{"name":"a"}'), headers=headers), Sample, may_be_empty=False)


async def test_where_a_body_may_be_empty_it_needs_no_type() -> None:
    assert await from_body(visit_with(part(b""), headers=()), Choices, may_be_empty=True) == Choices()
    with pytest.raises(BadRequest, match=r"body\.name: missing"):
        await from_body(visit_with(part(b""), headers=()), Sample, may_be_empty=True)


async def test_an_upload_that_came_to_a_halt_is_refused() -> None:
    asgi = Asgi(part(b"{", more=True))
    asgi.connection.upload_failure = UploadTooSlow("")
    with pytest.raises(UploadTooSlow):
        await from_body(Visit(asgi.scope, asgi.receive), Sample, may_be_empty=False)


async def test_an_upload_whose_sender_left_ends() -> None:
    with pytest.raises(UploadTooSlow):
        await from_body(visit_with(part(b"{", more=True), GONE), Sample, may_be_empty=False)


# Queries


def test_a_query_becomes_its_model() -> None:
    sample = from_query(visit_with(query="name=a&from=b%20c"), Sample)
    assert (sample.name, sample.first) == ("a", "b c")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("name=a&nmae=b", "query.nmae: unknown field; did you mean name?"),
        ("name=", 'query.name = "": must be 1 to 64'),
        ("name", 'query.name = "": must be 1 to 64'),
        ("name=a&name=a", "The query names a parameter twice."),
        ("name=%ff", "The query is not readable."),
        ("name=\xff", "The query is not readable."),
        ("&".join(f"a{index}=1" for index in range(MOST_PARAMETERS + 1)), "The query is not readable."),
    ],
)
def test_a_query_is_read_strictly(query: str, text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        from_query(visit_with(query=query), Sample)
    assert text in caught.value.message

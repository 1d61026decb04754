"""Is what was sent well-formed? A body or a query → its model, or every problem at once."""

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.asgi import CONNECTION, Connection
from gateway.configuration.problems import ALLOWED, LONGEST_VALUE, quoted, shown, unknown
from gateway.errors import BadRequest, BodyTooLarge, UnsupportedMediaType, UploadTooSlow
from gateway.pages import Visit
from gateway.settings import Section

MAX_BODY_BYTES = 1024 * 1024
MOST_PROBLEMS = 20  # that are told at once
MOST_PARAMETERS = 20
A_TIME = "must be a date and time, as 2027-01-31T00:00:00Z"

SectionT = TypeVar("SectionT", bound=Section)


async def from_body(visit: Visit, kind: type[SectionT], *, may_be_empty: bool) -> SectionT:
    """Raises CallerError."""
    fields = visit.fields
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedMediaType("Compressed bodies are not read. Send it without Content-Encoding.")
    body = await _received(visit)
    if not body and may_be_empty:
        return checked(kind, "body", lambda: kind.model_validate({}))
    media_type = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise UnsupportedMediaType("Send JSON with the header Content-Type: application/json.")
    return checked(kind, "body", lambda: kind.model_validate_json(body, strict=True))


async def _received(visit: Visit) -> bytearray:
    connection: Connection = visit.scope["extensions"][CONNECTION]
    body, more = bytearray(), True
    while more:
        message = await visit.receive()
        if connection.upload_failure is not None:
            raise connection.upload_failure
        if message["type"] != "http.request":
            raise UploadTooSlow("The request's body did not come to its end.")
        body += message["body"]
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"The request's body is larger than {MAX_BODY_BYTES} bytes, the limit here.")
    return body


def from_query(visit: Visit, kind: type[SectionT]) -> SectionT:
    """Raises BadRequest."""
    try:
        text = visit.scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except ValueError:  # of which UnicodeDecodeError is one
        raise BadRequest("The query is not readable. Send at most a few parameters, in UTF-8.") from None
    query = dict(pairs)
    if len(query) < len(pairs):
        raise BadRequest("The query names a parameter twice.")
    return checked(kind, "query", lambda: kind.model_validate(query, strict=True))


def checked(kind: type[SectionT], where: str, validate: Callable[[], SectionT]) -> SectionT:
    """What `validate` gives; raises BadRequest that names each field it has something against."""
    try:
        return validate()
    except ValidationError as error:
        problems = error.errors(include_url=False)
    [first, *_] = problems
    if not first["loc"]:
        raise _unreadable(first)
    text = "\n".join(_told(kind, where, details) for details in problems[:MOST_PROBLEMS])
    raise BadRequest(text, param=str(first["loc"][0])[:LONGEST_VALUE])


def _unreadable(details: ErrorDetails) -> BadRequest:
    if details["type"] == "json_invalid":
        message = f"The body is not valid JSON: {details['ctx']['error']}. Send one object, encoded in UTF-8."
        return BadRequest(message, code="invalid_json")
    return BadRequest("The body is no JSON object. Send one, in { }.", code="invalid_type")


def _told(kind: type[Section], where: str, details: ErrorDetails) -> str:
    """One problem, in the words in which a configuration's are told."""
    name, *inner = (str(part)[:LONGEST_VALUE] for part in details["loc"])
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    place = f"{where}.{quoted(name)}" + "".join(f"[{index}]" for index in inner)
    if name not in fields:
        return f"{place}: {unknown(name, fields, 'field')}"
    description = " ".join((fields[name].description or "").split())
    if details["type"] == "missing":
        return f"{place}: missing; add it. {description}"
    return f"{place} = {shown(details['input'], name)}: {_allowed(details)}. {description}"


def _allowed(details: ErrorDetails) -> str:
    if details["type"].startswith("datetime"):
        return A_TIME
    allowed = ALLOWED.get(details["type"])
    return allowed.format_map(details.get("ctx", {})) if allowed else details["msg"]

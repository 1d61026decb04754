"""How is the admin API told in OpenAPI's words? Read off its table of operations."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from gateway.admin.operations import Nothing, Operation, Operations
from gateway.openapi import Api, Described, answer, document, refusals

Json = dict[str, Any]
AnyOperation = Operation[Any, Any]

_API = Api(
    title="vllm-gateway admin API",
    about=(
        "Keys, tenants, usage and workers, and what else the admin port has. HEAD is answered wherever GET "
        "is; other methods get 405 with `allow`, other paths 404, each with an error object. Times are UTC."
    ),
    key="The admin key: `gateway keys admin` makes one. Keys of tenants do not open this API.",
)
_NO_STORE = ("cache-control",)
_EVERY_REFUSAL = {400, 401, 403, 500, 503}
_OF_BODIES = {408, 413, 415}
_ID: Json = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def _open(path: str, name: str, summary: str, media_type: str, kind: str) -> Described:
    """A page that needs no key."""
    answers = {"200": answer(summary, {media_type: {"type": kind}})} | refusals((500,))
    return Described("GET", path, name, summary, answers, needs_key=False)


_OPEN = (
    _open("/metrics", "readMetrics", "Metrics, as Prometheus reads them.", "text/plain", "string"),
    _open("/health", "isAlive", "Whether the process lives.", "application/json", "object"),
    _open("/openapi.json", "describeAdminApi", "This document.", "application/json", "object"),
    _open(
        "/openapi/public.json",
        "describePublicPort",
        "The public port's document.",
        "application/json",
        "object",
    ),
)


class _Untitled(GenerateJsonSchema):
    """Without titles that only repeat names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def admin_document(operations: Sequence[AnyOperation]) -> Json:
    """The admin API's document."""
    return document(_API, (*map(described, operations), *_OPEN), _schemas(operations))


def described(operation: AnyOperation) -> Described:
    summary, _, about = (inspect.getdoc(operation.carry_out) or "").partition("\n\n")
    content = {"application/json": _ref(operation.gives)}
    statuses = _EVERY_REFUSAL.union(operation.also, _OF_BODIES if operation.has_body else ())
    return Described(
        operation.method,
        operation.path,
        operation.name,
        summary,
        {str(operation.status): answer(summary, content, _NO_STORE)} | refusals(statuses, _NO_STORE),
        about=" ".join(about.split()),
        parameters=list(_parameters(operation)),
        body=_body(operation),
    )


def _parameters(operation: AnyOperation) -> Iterator[Json]:
    if "{id}" in operation.path:
        yield _ID
    if not operation.has_body:
        schema = operation.takes.model_json_schema(schema_generator=_Untitled)
        for name, content in schema["properties"].items():
            yield {
                "name": name,
                "in": "query",
                "explode": False,
                "description": content.pop("description"),
                "schema": content,
            }


def _body(operation: AnyOperation) -> Json | None:
    if not operation.has_body or operation.takes is Nothing:
        return None
    is_required = operation.method == "PUT" or "required" in operation.takes.model_json_schema()
    return {"required": is_required, "content": {"application/json": {"schema": _ref(operation.takes)}}}


def _schemas(operations: Operations) -> dict[str, Json]:
    """Of all bodies and answers, by name."""
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for of in operations:
        wanted.append((of.gives, "serialization"))
        if _body(of):
            wanted.append((of.takes, "validation"))
    template = "#/components/schemas/{model}"
    _, whole = models_json_schema(wanted, ref_template=template, schema_generator=_Untitled)
    schemas: dict[str, Json] = whole["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
    return schemas


def _ref(kind: type[BaseModel]) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}

"""How do descriptions of single operations become a whole document?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway import __version__
from gateway.openapi.parts import ERROR, HEADERS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Described:
    """One method of one path, in OpenAPI's words."""

    method: str
    path: str
    name: str  # of the function that clients call; unique in a document
    summary: str
    answers: Mapping[str, Json]  # by status
    about: str = ""
    parameters: Sequence[Json] = ()
    body: Json | None = None
    needs_key: bool = True

    def told(self) -> Json:
        content: Json = {"operationId": self.name, "summary": self.summary}
        if self.about:
            content["description"] = self.about
        if self.parameters:
            content["parameters"] = list(self.parameters)
        if self.body is not None:
            content["requestBody"] = self.body
        if not self.needs_key:
            content["security"] = []
        return content | {"responses": dict(self.answers)}


@dataclass(frozen=True, slots=True)
class Api:
    """What is said of a document as a whole. servers: as OpenAPI has them. key: who issues the credential."""

    title: str
    about: str
    key: str
    servers: Sequence[Json] = field(default=({"url": "/"},))


def document(api: Api, operations: Iterable[Described], schemas: Mapping[str, Json]) -> Json:
    """The whole, ready to be sent as JSON."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.told()
    return {
        "openapi": "3.1.0",
        "info": {"title": api.title, "description": api.about, "version": __version__},
        "servers": list(api.servers),
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": api.key}},
            "headers": HEADERS,
            "schemas": {"Error": ERROR} | dict(schemas),
        },
    }

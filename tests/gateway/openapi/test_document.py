"""Do descriptions of operations become a document by the standard?"""

from openapi_spec_validator import validate

from gateway import __version__
from gateway.openapi import Api, Described, answer, document, refusals

API = Api("A title", "About it.", "Who issues keys.")
TEXT = answer("A text.", {"text/plain": {"type": "string"}})


def test_operations_are_gathered_by_their_paths() -> None:
    made = document(
        API,
        [
            Described("GET", "/a", "readA", "Read.", {"200": TEXT} | refusals((401, 503))),
            Described("PUT", "/a", "putA", "Put.", {"200": TEXT}, about="In full."),
            Described("GET", "/b", "readB", "Read.", {"200": TEXT}, needs_key=False),
        ],
        {"Thing": {"type": "object"}},
    )
    validate(made)
    assert {path: list(methods) for path, methods in made["paths"].items()} == {
        "/a": ["get", "put"],
        "/b": ["get"],
    }
    assert made["paths"]["/a"]["put"] == {
        "operationId": "putA",
        "summary": "Put.",
        "description": "In full.",
        "responses": {"200": TEXT},
    }
    assert made["paths"]["/b"]["get"]["security"] == []
    assert made["components"]["schemas"].keys() == {"Error", "Thing"}
    assert made["info"] == {"title": "A title", "description": "About it.", "version": __version__}
    assert made["components"]["securitySchemes"]["key"]["description"] == "Who issues keys."
    assert made["servers"] == [{"url": "/"}]


def test_what_an_operation_takes_is_told() -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    body = {"content": {"application/json": {"schema": {"type": "object"}}}}
    of = Described("POST", "/{id}", "do", "Do.", {"200": TEXT}, parameters=[parameter], body=body)
    validate(document(API, [of], {}))
    assert of.told()["parameters"] == [parameter]
    assert of.told()["requestBody"] == body

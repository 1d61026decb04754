"""Does the admin API's document say what there is, all of it and nothing else?"""

from openapi_spec_validator import validate
from starlette.routing import Route

from gateway.pages import Page
from tests.gateway.admin.desk import Desk


def test_the_document_is_one_by_the_standard() -> None:
    validate(Desk().documented.document)


def test_it_has_every_path_and_method_of_the_port_and_no_other() -> None:
    served = {
        (route.path, method.lower())
        for route in Desk().app.pages.routes
        if isinstance(route, Route) and isinstance(route.app, Page)
        for method in route.app.shows
    }
    paths = Desk().documented.document["paths"]
    told = {(path, method) for path, methods in paths.items() for method in methods}
    assert told == served
    assert len(told) == 16


def test_only_what_is_below_admin_needs_the_key() -> None:
    paths = Desk().documented.document["paths"]
    free = {
        path for path, methods in paths.items() if any(of.get("security") == [] for of in methods.values())
    }
    assert free == {path for path in paths if not path.startswith("/admin/")}


def test_each_operation_says_what_it_does_and_has_a_name_of_its_own() -> None:
    paths = Desk().documented.document["paths"]
    operations = [of for methods in paths.values() for of in methods.values()]
    assert all(of["summary"].endswith(".") for of in operations)
    assert len({of["operationId"] for of in operations}) == len(operations)
    assert paths["/admin/keys/{id}/rotate"]["post"]["description"].startswith("The old secret stays good")


def test_bodies_and_parameters_are_those_that_are_read() -> None:
    document = Desk().documented.document
    paths, schemas = document["paths"], document["components"]["schemas"]
    body = paths["/admin/tenants/{id}"]["put"]["requestBody"]
    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/TenantFields"}
    tenant = schemas["TenantFields"]["properties"]
    assert "id" not in tenant
    assert tenant["requests_per_minute"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10**9,
    }
    assert schemas["TenantFields"]["additionalProperties"] is False
    assert paths["/admin/keys"]["post"]["requestBody"]["required"] is True
    assert paths["/admin/keys/{id}/rotate"]["post"]["requestBody"]["required"] is False
    assert "requestBody" not in paths["/admin/workers/{id}/drain"]["post"]
    usage = paths["/admin/usage"]["get"]["parameters"]
    assert [(of["name"], of["in"]) for of in usage] == [
        (name, "query") for name in ("from", "to", "tenant", "by")
    ]
    [only] = paths["/admin/keys/{id}"]["delete"]["parameters"]
    assert (only["name"], only["in"], only["required"]) == ("id", "path", True)


def test_answers_leave_room_for_what_later_versions_add() -> None:
    schemas = Desk().documented.document["components"]["schemas"]
    for name in ("Key", "KeyWithSecret", "Tenant", "Usage", "Worker"):
        assert "additionalProperties" not in schemas[name]
        assert set(schemas[name]["required"]) == schemas[name]["properties"].keys()
        assert not {"sha256", "secrets", "title"} & schemas[name].keys()


def test_refusals_are_told_where_they_can_come() -> None:
    paths = Desk().documented.document["paths"]
    assert paths["/admin/keys"]["get"]["responses"].keys() == {"200", "400", "401", "403", "500", "503"}
    assert paths["/admin/keys"]["post"]["responses"].keys() == {
        "201", "400", "401", "403", "404", "408", "409", "413", "415", "500", "503",
    }  # fmt: skip

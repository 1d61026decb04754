"""Are the headers and errors that all answers share told as they are sent?"""

import re

import pytest

from gateway import errors
from gateway.errors import BadRequest, GatewayError
from gateway.headers import go_duration
from gateway.openapi import Api, Described, document
from gateway.openapi.parts import HEADERS, REFUSALS, answer, refusals
from tests.documented import Documented


def kinds() -> list[type[GatewayError]]:
    found = vars(errors).values()
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, GatewayError)]


def test_every_status_of_an_error_is_known() -> None:
    of_http_itself = {405, 431}  # no operation has them
    assert {kind.status for kind in kinds()} - of_http_itself <= REFUSALS.keys()


@pytest.mark.parametrize("name", HEADERS)
def test_the_example_of_a_header_is_one(name: str) -> None:
    assert re.fullmatch(HEADERS[name]["schema"]["pattern"], HEADERS[name]["example"])


@pytest.mark.parametrize("seconds", [0, 0.0004, 0.5, 1, 1.5, 59.999, 60, 360, 3600, 86399.001])
def test_a_duration_matches_its_pattern(seconds: float) -> None:
    pattern = HEADERS["x-ratelimit-reset-tokens"]["schema"]["pattern"]
    assert re.search(pattern, go_duration(seconds))


@pytest.mark.parametrize("text", ["", "1", "1.5", "ms", "-1s", "1s2m", "1ms1"])
def test_no_other_text_does(text: str) -> None:
    assert not re.search(HEADERS["x-ratelimit-reset-tokens"]["schema"]["pattern"], text)


def test_refusals_are_told_with_the_headers_that_they_have() -> None:
    told = refusals((429, 401), ("x-gateway-worker",))
    always = {"x-request-id", "openai-processing-ms", "x-gateway-worker"}
    assert list(told) == ["401", "429"]
    assert told["401"]["headers"].keys() == always | {"www-authenticate"}
    assert told["429"]["headers"].keys() == always | {"retry-after", "retry-after-ms", "x-should-retry"}


def test_an_error_is_as_its_schema_says() -> None:
    whole = document(Api("", "", ""), [Described("GET", "/", "a", "A.", refusals((400,)))], {})
    headers = {"x-request-id": "a", "openai-processing-ms": "0", "content-type": "application/json"}
    Documented(whole).check("GET", "/", 400, headers, BadRequest("No.", param="n").body())


def test_headers_of_an_answer_are_references() -> None:
    told = answer("About.", {"text/plain": {}}, ("retry-after",))
    assert told["headers"]["retry-after"] == {"$ref": "#/components/headers/retry-after"}

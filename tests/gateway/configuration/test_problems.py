"""Does a problem read as one line that says what to do, and gives no secret away?"""

import pytest

from gateway.configuration import SECTIONS, TABLES
from gateway.configuration.problems import SECRETS, ConfigurationError, quoted, shown, unknown
from tests.gateway.configuration.files import BROKEN, expected


def test_a_problem_is_one_line_whatever_the_file_holds() -> None:
    assert shown("a\nb") == '"a\\nb"'
    assert quoted("a\nb") == '"a\\nb"'
    assert quoted("max_n-2") == "max_n-2"


def test_a_long_value_is_cut() -> None:
    assert shown("x" * 98) == f'"{"x" * 98}"'
    assert shown("x" * 99) == f'"{"x" * 96}...'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("redis://:hunter2@host/0", '"redis://(hidden)@host/0"'),
        ("redis://me:hun@ter2@host/0", '"redis://(hidden)@host/0"'),
        ("redis://host/0?password=hunter2", '"redis://host/0?(hidden)"'),
        (["http://a:hunter2@h", "http://b:hunter2@h"], '["http://(hidden)@h", "http://(hidden)@h"]'),
        ("me@example?", '"me@example?"'),
    ],
)
def test_a_password_in_a_url_is_hidden(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("name", ["cache_salt_secret", "sha256", "api_key_env", "auth", "keys"])
def test_what_may_be_a_secret_is_hidden_whole(name: str) -> None:
    assert shown("sk-live-secret", name) == "(hidden)"


def test_what_is_hidden_is_the_name_of_a_table_or_a_field() -> None:
    fields = {field for kind in (*SECTIONS.values(), *TABLES.values()) for field in kind.model_fields}

    assert {*SECTIONS, *TABLES, *fields} >= SECRETS


def test_an_unknown_name_gets_the_one_that_was_meant_or_all() -> None:
    assert unknown("prot", ["port", "host"]) == "unknown setting; did you mean port?"
    assert unknown("zzz", ["port", "host"], "field") == "unknown field; known: host, port"
    assert unknown("acme", [], "tenant") == "unknown tenant; known: none"
    assert unknown("prot", ["port"], prefix="GATEWAY_") == "unknown setting; did you mean GATEWAY_PORT?"
    assert unknown("zzz", ["port"], prefix="GATEWAY_") == "unknown setting; known: GATEWAY_PORT"


def test_the_error_holds_the_problems_as_lines() -> None:
    error = ConfigurationError(("a", "b"))

    assert error.problems == ["a", "b"]
    assert str(error) == "a\nb"


def test_no_message_keeps_the_words_of_the_library_or_cuts_them() -> None:
    said = "\n".join(line for file in BROKEN for line in expected(file))

    for leftover in ("Input", "should", "valid integer", "Value error", "pattern", ": be ", "e+", "..: "):
        assert leftover not in said

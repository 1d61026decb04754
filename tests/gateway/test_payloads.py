"""Is what matters read of a worker's JSON, whatever else it has?"""

import msgspec
import pytest

from gateway import payloads
from gateway.model import Usage


def test_the_usage_of_an_answer_is_read() -> None:
    whole = payloads.whole(
        b'{"id": "x", "choices": [{}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}'
    )
    assert whole.usage is not None
    assert whole.usage.usage() == Usage(7, 2, 0)


@pytest.mark.parametrize("usage", ["null", '{"prompt_tokens": 7, "completion_tokens": null}'])
def test_usage_that_is_not_there_is_none(usage: str) -> None:
    told = payloads.whole(b'{"usage": %b}' % usage.encode()).usage
    assert told is None or told.usage() == Usage(7, 0, 0)


@pytest.mark.parametrize(("details", "cached"), [("null", 0), ("{}", 0), ('{"cached_tokens": 3}', 3)])
def test_cached_tokens_are_read_where_they_are_told(details: str, cached: int) -> None:
    event = payloads.event(b'{"usage": {"prompt_tokens": 7, "prompt_tokens_details": %b}}' % details.encode())
    assert event.usage is not None
    assert event.usage.usage() == Usage(7, 0, cached)


def test_an_event_tells_its_choices_and_its_error() -> None:
    event = payloads.event(b'{"choices": [], "error": {"message": "no"}}')
    assert (event.choices, event.error, event.usage) == ([], {"message": "no"}, None)


@pytest.mark.parametrize(("code", "read"), [("404", 404), ('"not_found"', "not_found"), ("null", None)])
def test_a_refusal_tells_its_code(code: str, read: int | str | None) -> None:
    assert payloads.refusal(b'{"error": {"code": %b, "message": "no"}}' % code.encode()).error.code == read


@pytest.mark.parametrize("read", [payloads.event, payloads.whole, payloads.refusal])
def test_what_is_no_such_object_is_an_error(read: object) -> None:
    assert callable(read)
    with pytest.raises(msgspec.MsgspecError):
        read(b"[]")

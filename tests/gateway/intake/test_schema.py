"""Reading a body: strict in what is read, blind to the rest, never at odds with the worker's reader."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gateway.errors import BadRequest
from gateway.intake.schema import (
    ABSENT,
    ChatBody,
    CompletionBody,
    decode,
    decode_template_arguments,
    was_sent,
)
from gateway.model import Endpoint
from tests.gateway.intake.samples import chat, completion

CHAT, COMPLETIONS = Endpoint.CHAT, Endpoint.COMPLETIONS
FIELDS = sorted({*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__})


def refusal(body: bytes, endpoint: Endpoint = CHAT) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        decode(body, endpoint)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"model":"small","messages":[]} x',
        b'{"model":"small","messages":[]}{}',
        b'{"model":"small","messages":[],}',
        b'{"model":"small" "messages":[]}',
        b"{'model':'small'}",
        b'\xef\xbb\xbf{"model":"small","messages":[]}',
        '{"model":"small","messages":[]}'.encode("utf-16"),
        b'{"model":"small\xff","messages":[]}',
        b'{"model":"small","messages":[],"user":"\xff"}',
        b'{"model":"small","messages":[],"\xc0\xaf":1}',
        b'{"model":"small","messages":[],"user":"\xed\xa0\x80"}',
        b'{"model":"small","messages":[],"temperature":NaN}',
        b'{"model":"small","messages":[],"temperature":Infinity}',
        b'{"model":"small","messages":[],"temperature":-Infinity}',
        b'{"model":"small","messages":[],"seed":01}',
        b'{"model":"small","messages":[],"seed":1.}',
        b'{"model":"small","messages":[],"user":"a\nb"}',
        b'{"model":"small","messages":[],"user":"\\q"}',
        b'{"model":"small","messages":[],"user":"\\ud83d"}',
        b'{"model":"small","messages":[{"role":"user","content":"\\ud83d"}]}',
        b'{"model":"small","messages":[],"n":NaN}',
        b'{"model":"small","messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"small","messages":[],"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    error = refusal(body)
    assert (error.status, error.param, error.code) == (400, None, "invalid_json")


def test_the_refusal_of_an_empty_body_says_so() -> None:
    assert "it is empty" in refusal(b"").message


def test_the_refusal_of_malformed_json_says_where() -> None:
    assert "trailing characters (byte 33)" in refusal(b'{"model":"small","messages":[]} x').message


def test_the_refusal_of_text_that_is_not_utf_8_says_where() -> None:
    assert "byte 11 is not UTF-8" in refusal(b'{"x":"\xc3\xa9","\xff":1}').message


def test_the_refusal_of_half_a_character_says_so() -> None:
    assert "without its pair" in refusal(b'{"model":"small","messages":[],"user":"\\ud83d"}').message


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"[]", None, "The request body has the wrong type: expected an object, got an array."),
        (b'"x"', None, "The request body has the wrong type: expected an object, got a string."),
        (chat(n="8"), "n", "Invalid type for 'n': expected an integer or null, got a string."),
        (chat(n=True), "n", "Invalid type for 'n': expected an integer or null, got true or false."),
        (
            chat(n=8.0),
            "n",
            "Invalid type for 'n': expected an integer or null, got a number with a fraction or exponent.",
        ),
        (chat(stream="true"), "stream", "Invalid type for 'stream': expected true or false or null, got a"),
        (chat(stream=1), "stream", "got an integer."),
        (chat(messages={}), "messages", "expected an array, got an object."),
        (chat(messages=None), "messages", "expected an array, got null."),
        (chat(messages=["x"]), "messages[0]", "expected an object, got a string."),
        (
            chat(messages=[{"role": "user"}, {"role": "user", "content": {"type": "text"}}]),
            "messages[1].content",
            "expected a string or an array or null, got an object.",
        ),
        (chat(messages=[{"role": "user", "content": 7}]), "messages[0].content", "got an integer."),
        (
            chat(messages=[{"role": "user", "content": ["a", {"type": "text", "text": 7}]}]),
            "messages[0].content[1].text",
            "got an integer.",
        ),
        (chat(messages=[{"role": 7}]), "messages[0].role", "got an integer."),
        (chat(top_logprobs="5"), "top_logprobs", "got a string."),
        (chat(logprobs=5), "logprobs", "got an integer."),
    ],
)
def test_a_wrong_type_is_refused_with_the_path_and_what_is_allowed(
    body: bytes, param: str | None, message: str
) -> None:
    error = refusal(body)
    assert (error.param, error.code) == (param, "invalid_type")
    assert message in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": {}}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [1.0]}, "prompt[0]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [None]}, "prompt[0]"),
        ({"prompt": [[1], [1, "2"]]}, "prompt[1][1]"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": 1}, "echo"),
        ({"max_tokens": "5"}, "max_tokens"),
    ],
)
def test_a_wrong_type_in_a_completion_is_refused(fields: dict[str, Any], param: str) -> None:
    error = refusal(completion(**fields), COMPLETIONS)
    assert (error.param, error.code) == (param, "invalid_type")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"messages":[]}', "model"),
        (b'{"model":"small"}', "messages"),
        (b'{"model":"small","messages":[{"content":"Hi"}]}', "messages[0].role"),
    ],
)
def test_a_missing_field_is_refused_by_its_path(body: bytes, param: str) -> None:
    error = refusal(body)
    assert (error.param, error.code) == (param, "missing_required_parameter")
    assert error.message == f"Missing required parameter: '{param}'."


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5000])
def test_a_number_that_no_integer_holds_is_refused(number: bytes) -> None:
    error = refusal(b'{"model":"small","messages":[],"n":' + number + b"}")
    assert (error.param, error.code) == ("n", "invalid_value")


@pytest.mark.parametrize(
    "rest",
    [
        b'"seed":18446744073709551616',
        b'"x":1e999999',
        b'"x":' + b"[" * 900 + b"]" * 900,
        b'"x":' + b'{"a":' * 900 + b"1" + b"}" * 900,
        b'"x":"\\ud83d\\ude00"',
    ],
)
def test_what_is_not_read_is_not_judged(rest: bytes) -> None:
    assert decode(b'{"model":"small","messages":[],' + rest + b"}", CHAT).model == "small"


def test_of_two_members_with_one_name_the_last_is_read_as_by_the_worker() -> None:
    body = b'{"model":"a","n":1,"messages":[],"model":"b","n":2,"n":null,"\\u006dodel":"c"}'
    read = decode(body, CHAT)
    assert (read.model, read.n) == ("c", None)
    assert json.loads(body) == {"model": "c", "n": None, "messages": []}


def test_escapes_in_keys_are_understood() -> None:
    read = decode(b'{"mod\\u0065l":"small","messages":[],"\\u006eax_tokens":1,"\\u006dax_tokens":9}', CHAT)
    assert read.max_tokens == 9


def test_a_field_that_is_null_was_not_sent() -> None:
    assert not was_sent(ABSENT)
    assert not was_sent(decode(chat(priority=None), CHAT).priority)
    assert was_sent(decode(chat(priority=0), CHAT).priority)


@pytest.mark.parametrize("sent", [b"[]", b'"x"', b"7", b"true"])
def test_arguments_of_a_template_that_are_no_object_are_refused(sent: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_template_arguments(Raw(sent))
    assert (caught.value.param, caught.value.code) == ("chat_template_kwargs", "invalid_type")
    assert caught.value.message == "Invalid type for 'chat_template_kwargs': expected an object or null."


def test_of_the_arguments_of_a_template_the_last_template_is_read() -> None:
    read = decode_template_arguments(Raw(b'{"chat_template":null,"a":1,"chat\\u005ftemplate":"x"}'))
    assert bytes(read.chat_template) == b'"x"'
    assert not was_sent(
        decode_template_arguments(Raw(b'{"chat_template":"x","chat_template":null}')).chat_template
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.just("user")},
        optional={
            "content": st.text()
            | st.lists(st.text() | st.fixed_dictionaries({"text": st.text()}))
            | st.none(),
            "name": st.text(),
            "tool_calls": JSON,
        },
    ),
    max_size=3,
)
LIKELY = {
    "model": st.text(max_size=5),
    "messages": MESSAGES,
    "prompt": st.text() | st.lists(st.text()) | st.lists(st.integers()) | st.lists(st.lists(st.integers())),
    "stream": st.booleans(),
    "stream_options": st.dictionaries(st.sampled_from(["include_usage", "x"]), JSON),
}
MEMBER = st.sampled_from([*FIELDS, "temperature", "user"]).flatmap(
    lambda name: st.tuples(st.just(name), LIKELY.get(name, st.none() | st.integers() | st.booleans()) | JSON)
)
ENDPOINT = st.sampled_from(Endpoint)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects as a caller might write them: any order, repeated names, white space, escapes, and slips."""
    members = [("model", "small"), ("messages", draw(MESSAGES)), *draw(st.lists(MEMBER, max_size=8))]
    space = draw(st.sampled_from(["", " ", "\n\t", "\r\n"]))
    text = ("," + space).join(
        json.dumps(name) + space + ":" + space + json.dumps(value, ensure_ascii=draw(st.booleans()))
        for name, value in draw(st.permutations(members))
    )
    written = (space + "{" + text + space + "}" + space).encode()
    for position, piece in draw(
        st.lists(st.tuples(st.integers(0, len(written)), st.binary(max_size=2)), max_size=2)
    ):
        written = written[:position] + piece + written[position + draw(st.integers(0, 1)) :]
    return written


def agrees(read: object, written: Any) -> bool:
    """Whether what was read of a value is what json.loads makes of it."""
    if isinstance(read, Raw):
        return bool(json.loads(bytes(read)) == written)
    if isinstance(read, list):
        return len(read) == len(written) and all(map(agrees, read, written))
    if isinstance(read, dict):
        return read.keys() == written.keys() and all(agrees(read[key], written[key]) for key in read)
    if hasattr(read, "__struct_fields__"):
        return all(agrees(getattr(read, name), written.get(name)) for name in read.__struct_fields__)
    return type(read) is type(written) and read == written


def worker_reads(body: bytes) -> Any:
    """What json.loads makes of it, or None where it refuses integers of more than 4,300 digits."""
    try:
        return json.loads(body)
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        return None


@given(body=bodies(), endpoint=ENDPOINT)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # neither is about what is tested
@example(body=b'{"model":"a","messages":[],"seed":' + b"9" * 5000 + b"}", endpoint=CHAT)
def test_what_is_accepted_means_the_same_to_the_reader_of_the_worker(body: bytes, endpoint: Endpoint) -> None:
    with suppress(BadRequest):
        read = decode(body, endpoint)
        written = worker_reads(body)
        assert written is None or agrees(read, written)

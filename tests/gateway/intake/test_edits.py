"""The worker gets the caller's bytes and the appended members, whatever the body looks like."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.intake.edits import JOIN_BELOW_BYTES
from gateway.model import Endpoint
from tests.gateway.intake.samples import SALT, appended, chat, completion, read, sent

MESSAGES = b'"messages":[{"role":"user","content":"Hi"}]'
ODD_BODIES = [
    b'{"model":"small",%s}',
    b'{"model":"small",%s}\n',
    b' \r\n\t{ \n"model" :\t"small" , %s \r\n} \n\t ',
    b'{%s,"model":"small"}',
    b'{"model":"small",%s,"seed":18446744073709551616}',
    b'{"model":"small",%s,"seed":-18446744073709551617}',
    b'{"model":"small",%s,"logit_bias":{"50256":-100,"1":1e-7}}',
    b'{"model":"small",%s,"temperature":0.30000000000000004,"top_p":1E+0}',
    b'{"model":"small",%s,"x":1e999999}',
    b'{"model":"small",%s,"x":-0.0}',
    b'{"model":"nope",%s,"model":"small"}',
    b'{"model":"small",%s,"max_tokens":1,"max_tokens":2,"max_tokens":null}',
    b'{"model":"small",%s,"user":"a","user":"b"}',
    b'{"messages":[],"model":"small",%s}',
    b'{"mod\\u0065l":"small",%s}',
    b'{"model":"sm\\u0061ll",%s}',
    b'{"model":"small",%s,"max\\u005ftokens":9}',
    b'{"model":"small",%s,"a\\"b":1,"c}":2,"\\\\":3}',
    b'{"model":"small",%s,"x":"}"}',
    b'{"model":"small",%s,"x":"{\\"cache_salt\\":\\"evil\\"}"}',
    b'{"model":"small",%s,"x":{}}',
    b'{"model":"small",%s,"x":{"model":"evil","cache_salt":"evil"}}',
    b'{"model":"small",%s,"x":[],"y":[[]],"z":[{}]}',
    b'{"model":"small",%s,"x":null,"y":true,"z":false}',
    b'{"model":"small",%s,"":""}',
    b'{"model":"small",%s,"x":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"model":"small",%s,"x":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    '{"model":"small",%s,"x":"日本語 😀 \u2028 \x7f"}'.encode(),
    b'{"model":"small",%s,"x":"\\u65e5\\ud83d\\ude00\\u0000"}',
    b'{"model":"small",%s,"cache_salt":"mine","cache_salt":"again"}',
    b'{"model":"small",%s,"chat_template_kwargs":{"enable_thinking":false}}',
    b'{"model":"small",%s,"metadata":{"api_base":"http://evil.test"},"api_key":"sk"}',
    b'{"model":"small",%s,"x":"' + b"y" * JOIN_BELOW_BYTES + b'"}\n',
    b'{"model":"small",%s,"stream":true,"stream":false}',
    b'{"model":"small",%s,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}',
]


@pytest.mark.parametrize("template", ODD_BODIES)
def test_the_worker_gets_the_bytes_of_the_caller_and_the_appended_members(template: bytes) -> None:
    body = template.replace(b"%s", MESSAGES)
    job = read(body)
    expected = json.loads(body) | {"cache_salt": SALT}
    if expected.get("max_tokens") is None:
        expected["max_tokens"] = 256
    assert appended(body, job)["cache_salt"] == SALT
    assert json.loads(sent(job)) == expected


NAMES = st.sampled_from(
    ["temperature", "priority", "request_id", "vllm_xargs", "user", "cache_salt", "max_tokens"]
)
VALUES = st.none() | st.integers(1, 2048)


@given(
    members=st.lists(st.tuples(NAMES, VALUES), max_size=6),
    model=st.sampled_from(["small", "gpt-4o-mini", "capped"]),
    stream=st.booleans(),
    space=st.sampled_from(["", " ", "\n"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # neither is about what is tested
def test_only_the_documented_members_are_overridden(
    members: list[tuple[str, int | None]], model: str, stream: bool, space: str
) -> None:
    pairs = [("model", model), ("messages", [{"role": "user"}]), ("stream", stream), *members]
    text = ("," + space).join(f"{json.dumps(name)}:{space}{json.dumps(value)}" for name, value in pairs)
    body = (space + "{" + text + space + "}" + space).encode()
    last = dict(pairs)
    job = read(body)
    expected: dict[str, Any] = last | {
        "cache_salt": SALT,
        "model": "capped" if model == "capped" else "small",
    }
    if stream:
        expected["stream_options"] = {"include_usage": True}
    for name, value in {"priority": 0, "request_id": "req-1", "vllm_xargs": None}.items():
        if last.get(name) is not None:
            expected[name] = value
    asked: Any = last.get("max_tokens")
    expected["max_tokens"] = min(asked or 100, 100) if model == "capped" else asked or 256
    assert json.loads(sent(job)) == expected
    assert appended(body, job)["cache_salt"] == SALT


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({"model": "plain"}, {}),
        ({"model": "gpt-4o-mini", "max_tokens": 5}, {"model": "small"}),
        ({"model": "small", "max_tokens": 5}, {}),
        ({"model": "plain", "priority": -5}, {"priority": 0}),
        ({"model": "plain", "priority": None}, {}),
        ({"model": "plain", "request_id": "mine"}, {"request_id": "req-1"}),
        ({"model": "plain", "session_id": "mine"}, {"session_id": None}),
        ({"model": "plain", "kv_transfer_params": {"prompt_token_ids": [1]}}, {"kv_transfer_params": None}),
        ({"model": "plain", "kv_transfer_params": {}}, {"kv_transfer_params": None}),
        ({"model": "plain", "kv_transfer_params": None}, {}),
        ({"model": "plain", "ec_transfer_params": {"a": 1}}, {"ec_transfer_params": None}),
        ({"model": "plain", "vllm_xargs": {"a": 1}}, {"vllm_xargs": None}),
        ({"model": "plain", "prompt_embeds": "AAAA"}, {"prompt_embeds": None}),
        ({"model": "plain", "mm_processor_kwargs": {"max_pixels": 1e9}}, {"mm_processor_kwargs": None}),
        ({"model": "plain", "media_io_kwargs": {"video": {}}}, {"media_io_kwargs": None}),
        (
            {"model": "plain", "priority": 1, "request_id": None, "vllm_xargs": 1},
            {"priority": 0, "vllm_xargs": None},
        ),
        ({"model": "plain", "cache_salt": "mine"}, {}),
        ({"model": "plain", "ignore_eos": True, "min_tokens": 5, "user": "ada"}, {}),
    ],
)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_what_is_appended(fields: dict[str, Any], added: dict[str, Any], endpoint: Endpoint) -> None:
    body = chat(**fields) if endpoint is Endpoint.CHAT else completion(**fields)
    assert appended(body, read(body, endpoint)) == {"cache_salt": SALT} | added


def test_a_chat_template_is_erased_unless_it_is_allowed() -> None:
    body = chat(model="plain", chat_template="{{ messages }}")
    assert appended(body, read(body)) == {"cache_salt": SALT, "chat_template": None}
    assert appended(body, read(body, allow_chat_template=True)) == {"cache_salt": SALT}
    assert appended(body, read(body, tenant={"allow_chat_template": True})) == {"cache_salt": SALT}
    forbidden = read(body, tenant={"allow_chat_template": False}, allow_chat_template=True)
    assert appended(body, forbidden) == {"cache_salt": SALT, "chat_template": None}
    nothing = chat(model="plain", chat_template=None)
    assert appended(nothing, read(nothing)) == {"cache_salt": SALT}


@pytest.mark.parametrize(
    ("fields", "options", "wanted"),
    [
        ({"stream": True}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": None}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": {}}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": {"include_usage": None}}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, None, True),
        ({"stream": True, "stream_options": {"a": [1], "include_usage": True}}, None, True),
        ({"stream": True, "stream_options": {"a": [1, {}]}}, {"a": [1, {}], "include_usage": True}, False),
        ({"stream": False}, None, False),
        ({"stream": None}, None, False),
        ({}, None, False),
    ],
)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_usage_is_asked_for_on_every_stream_and_only_there(
    fields: dict[str, Any], options: dict[str, Any] | None, wanted: bool, endpoint: Endpoint
) -> None:
    body = chat(**fields) if endpoint is Endpoint.CHAT else completion(**fields)
    job = read(body, endpoint)
    assert appended(body, job).get("stream_options") == options
    assert (job.stream, job.wants_usage) == (bool(fields.get("stream")), wanted)


def test_of_two_stream_options_the_last_is_completed() -> None:
    first = (
        b'{"model":"plain","messages":[{"role":"user"}],"stream":true,"stream_options":{"include_usage":true}'
    )
    body = first + b',"stream_options":{"include_usage":true,"include_usage":false,"a":1e2}}'
    job = read(body)
    assert appended(body, job)["stream_options"] == {"include_usage": True, "a": 100.0}
    assert b'"a":1e2' in sent(job)[len(body) :]
    assert not job.wants_usage


def test_a_small_body_goes_out_in_one_piece_and_a_large_one_is_not_copied() -> None:
    (piece,) = read(chat(user="x" * 1000)).body
    assert isinstance(piece, bytes)
    large = chat(user="x" * JOIN_BELOW_BYTES)
    prefix, members, suffix = read(large).body
    assert isinstance(prefix, memoryview)
    assert isinstance(suffix, memoryview)
    assert prefix.obj is large
    assert suffix.obj is large
    assert bytes(members).startswith(b',"cache_salt"')

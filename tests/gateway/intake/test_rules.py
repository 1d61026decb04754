"""Requests that are refused, each with the field and the remedy; and their legal neighbours, which pass."""

import json
from typing import Any

import pytest

from gateway.errors import BadRequest
from gateway.intake.rules import MOST_PIECES
from gateway.model import Endpoint
from tests.gateway.intake.samples import chat, completion, read, read_chat, read_completion, sent

CHAT, COMPLETIONS = Endpoint.CHAT, Endpoint.COMPLETIONS
SCHEMA = {"type": "object"}


def refusal(endpoint: Endpoint, fields: dict[str, Any], **rules: Any) -> BadRequest:
    """rules: settings of [intake], and `tenant` for fields of the tenant."""
    body = chat(**fields) if endpoint is CHAT else completion(**fields)
    with pytest.raises(BadRequest) as caught:
        read(body, endpoint, **rules)
    return caught.value


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (CHAT, {"n": 0}, "n"),
        (CHAT, {"n": -1}, "n"),
        (COMPLETIONS, {"n": 9}, "n"),
        (CHAT, {"n": 2**64}, "n"),
        (COMPLETIONS, {"prompt": ["a"] * 65}, "prompt"),
        (COMPLETIONS, {"prompt": [[1]] * 65}, "prompt"),
        (COMPLETIONS, {"prompt": ["a"] * 9, "n": 8}, "n"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (CHAT, {"messages": []}, "messages"),
        (COMPLETIONS, {"logprobs": 21}, "logprobs"),
        (COMPLETIONS, {"logprobs": -1}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
        (COMPLETIONS, {"stream": False, "stream_options": {}}, "stream_options"),
        (CHAT, {"stream": None, "stream_options": {}}, "stream_options"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_tokens": -5}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
        (COMPLETIONS, {"max_tokens": 0}, "max_tokens"),
        (COMPLETIONS, {"max_tokens": 0, "echo": False}, "max_tokens"),
        (COMPLETIONS, {"max_tokens": -1, "echo": True}, "max_tokens"),
        (CHAT, {"max_tokens": 2049}, "max_tokens"),
        (CHAT, {"max_tokens": 2**70}, "max_tokens"),
        (CHAT, {"model": "unknown-length", "max_tokens": 2**31}, "max_tokens"),
    ],
)
def test_a_value_out_of_range_is_refused(endpoint: Endpoint, fields: dict[str, Any], param: str) -> None:
    error = refusal(endpoint, fields)
    assert (error.status, error.param, error.code) == (400, param, "invalid_value")
    assert f"'{param}'" in error.message


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (CHAT, {"best_of": 2}, "best_of"),
        (COMPLETIONS, {"best_of": 4, "n": 2}, "best_of"),
        (CHAT, {"use_beam_search": True}, "use_beam_search"),
        (COMPLETIONS, {"use_beam_search": True}, "use_beam_search"),
        (CHAT, {"prompt_logprobs": 1}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 0}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt": None, "prompt_embeds": "AAAA"}, "prompt_embeds"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": ["a", {"type": "prompt_embeds", "data": "AAAA"}]}]},
            "messages[0].content[1]",
        ),
        (
            CHAT,
            {"messages": [{"role": "user"}, {"role": "user", "content": [{"prompt_embeds": "AAAA"}]}]},
            "messages[1].content[0]",
        ),
    ],
)
def test_a_costly_or_ignored_field_is_refused(endpoint: Endpoint, fields: dict[str, Any], param: str) -> None:
    error = refusal(endpoint, fields)
    assert (error.status, error.param, error.code) == (400, param, "unsupported_parameter")
    assert f"'{param}'" in error.message


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("guided_json", SCHEMA, "'structured_outputs': {\"json\""),
        ("guided_json", SCHEMA, "'response_format'"),
        ("guided_regex", "a+", "'structured_outputs': {\"regex\""),
        ("guided_choice", ["a", "b"], "'structured_outputs': {\"choice\""),
        ("guided_grammar", "root ::= a", "'structured_outputs': {\"grammar\""),
        ("guided_decoding_backend", "xgrammar", "Leave it out"),
        ("guided_whitespace_pattern", " ", "Leave it out"),
    ],
)
def test_a_removed_field_is_refused_with_its_successor(
    endpoint: Endpoint, field: str, value: object, remedy: str
) -> None:
    error = refusal(endpoint, {field: value})
    assert (error.param, error.code) == (field, "unsupported_parameter")
    assert remedy in error.message


def test_several_removed_fields_are_refused_by_the_first_that_was_sent() -> None:
    error = refusal(CHAT, {"guided_json": None, "guided_regex": "a", "guided_choice": ["a"]})
    assert error.param == "guided_regex"


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (CHAT, {"n": 8}),
        (CHAT, {"n": None}),
        (COMPLETIONS, {"prompt": ["a"] * 64}),
        (COMPLETIONS, {"prompt": ["a"] * 8, "n": 8}),
        (COMPLETIONS, {"prompt": [1] * 65}),
        (COMPLETIONS, {"logprobs": 20}),
        (COMPLETIONS, {"logprobs": 0}),
        (CHAT, {"logprobs": True, "top_logprobs": 20}),
        (CHAT, {"top_logprobs": None, "logprobs": None}),
        (CHAT, {"top_logprobs": 0, "logprobs": True}),
        (CHAT, {"best_of": 1}),
        (CHAT, {"best_of": None}),
        (COMPLETIONS, {"best_of": 3, "n": 3}),
        (CHAT, {"use_beam_search": False}),
        (CHAT, {"stream": False, "stream_options": None}),
        (CHAT, {"stream": True, "stream_options": {}}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": None}}),
        (CHAT, {"max_tokens": 2048}),
        (CHAT, {"max_tokens": 1}),
        (COMPLETIONS, {"max_tokens": 1}),
        (CHAT, {"max_tokens": None, "max_completion_tokens": None}),
        (CHAT, {"max_tokens": -1, "max_completion_tokens": 3}),
        (COMPLETIONS, {"max_tokens": 0, "echo": True}),
        (COMPLETIONS, {"max_completion_tokens": 0}),
        (CHAT, {"model": "unknown-length", "max_tokens": 2**31 - 1}),
        (CHAT, {"guided_json": None, "guided_regex": None}),
        (CHAT, {"prompt_logprobs": None}),
        (CHAT, {"temperature": 99, "stop": ["a"] * 9, "top_p": -1}),
        (CHAT, {"api_base": "http://evil.test", "metadata": {"base_url": "http://evil.test"}}),
        (COMPLETIONS, {"messages": 7}),
        (CHAT, {"prompt": 7, "echo": "x"}),
    ],
)
def test_what_is_legal_or_the_workers_business_passes(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    body = chat(**fields) if endpoint is CHAT else completion(**fields)
    assert read(body, endpoint).endpoint is endpoint


def test_prompt_logprobs_pass_where_they_are_allowed_up_to_the_limit() -> None:
    read(chat(prompt_logprobs=5), allow_prompt_logprobs=True, max_logprobs=5)
    for value in (6, -1):
        error = refusal(CHAT, {"prompt_logprobs": value}, allow_prompt_logprobs=True, max_logprobs=5)
        assert (error.param, error.code) == ("prompt_logprobs", "invalid_value")
        assert "between 0 and 5" in error.message


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (CHAT, {"logprobs": True}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 5}, "logprobs"),
        (CHAT, {"top_logprobs": 5}, "top_logprobs"),
        (CHAT, {"top_logprobs": -1}, "top_logprobs"),
        (CHAT, {"prompt_logprobs": 0}, "prompt_logprobs"),
        (COMPLETIONS, {"logprobs": 0}, "logprobs"),
        (COMPLETIONS, {"logprobs": 5, "echo": True}, "logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_log_probabilities_are_refused_to_a_tenant_that_may_not_have_them(
    endpoint: Endpoint, fields: dict[str, Any], param: str
) -> None:
    errors = [
        refusal(endpoint, fields, tenant={"allow_logprobs": False}, allow_prompt_logprobs=True),
        refusal(endpoint, fields, allow_logprobs=False, allow_prompt_logprobs=True),
    ]
    for error in errors:
        assert (error.status, error.param, error.code) == (400, param, "unsupported_parameter")
        assert f"'{param}' is not allowed for this key" in error.message
        assert "'allow_logprobs'" in error.message


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (CHAT, {"logprobs": False, "top_logprobs": 0}),
        (CHAT, {"logprobs": None, "top_logprobs": None, "prompt_logprobs": None}),
        (COMPLETIONS, {"logprobs": None, "prompt_logprobs": None}),
        (COMPLETIONS, {"top_logprobs": 5}),  # no field of a completion's
    ],
)
def test_a_request_that_gets_no_log_probabilities_passes_for_every_tenant(
    endpoint: Endpoint, fields: dict[str, Any]
) -> None:
    body = chat(**fields) if endpoint is CHAT else completion(**fields)
    read(body, endpoint, tenant={"allow_logprobs": False})


def test_log_probabilities_pass_for_a_tenant_that_may_have_them_where_others_may_not() -> None:
    read(chat(logprobs=True, top_logprobs=5), tenant={"allow_logprobs": True}, allow_logprobs=False)


def test_a_template_inside_the_arguments_of_the_template_needs_the_same_permission() -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": False, "chat_template": "{{ messages }}"}}
    error = refusal(CHAT, fields)
    assert (error.param, error.code) == ("chat_template_kwargs.chat_template", "unsupported_parameter")
    assert "'allow_chat_template'" in error.message
    read(chat(**fields), tenant={"allow_chat_template": True})
    read(chat(**fields), allow_chat_template=True)


@pytest.mark.parametrize(
    "arguments", [None, {}, {"enable_thinking": False, "chat_template": None}, {"a": {"chat_template": "x"}}]
)
def test_other_arguments_of_the_template_pass_for_every_tenant(arguments: dict[str, Any] | None) -> None:
    read(chat(chat_template_kwargs=arguments), tenant={"allow_chat_template": False})


@pytest.mark.parametrize("prompt", [["a", 1], [1, "a"], [[1], "a"], [1, [1]]])
def test_a_prompt_of_mixed_kinds_is_refused(prompt: object) -> None:
    error = refusal(COMPLETIONS, {"prompt": prompt})
    assert (error.param, error.code) == ("prompt", "invalid_type")


def test_a_completion_without_a_prompt_is_refused() -> None:
    error = refusal(COMPLETIONS, {"prompt": None})
    assert (error.param, error.code) == ("prompt", "missing_required_parameter")


@pytest.mark.parametrize("usage", [1, "true", [], {}])
def test_include_usage_must_be_a_boolean(usage: object) -> None:
    error = refusal(CHAT, {"stream": True, "stream_options": {"include_usage": usage}})
    assert (error.param, error.code) == ("stream_options.include_usage", "invalid_type")


@pytest.mark.parametrize(
    ("options", "code"), [([], "invalid_type"), (7, "invalid_type"), ({"x": "y" * 4096}, "invalid_value")]
)
def test_stream_options_are_a_small_object(options: Any, code: str) -> None:
    error = refusal(CHAT, {"stream": True, "stream_options": options})
    assert (error.param, error.code) == ("stream_options", code)


def test_the_largest_maximum_is_named_in_the_refusal() -> None:
    assert "may have 2048 tokens" in refusal(CHAT, {"max_tokens": 2049}).message
    unknown = refusal(CHAT, {"model": "unknown-length", "max_tokens": 2**31})
    assert f"may have {2**31 - 1} tokens" in unknown.message


@pytest.mark.parametrize("content", [None, [""]])
def test_a_chat_of_too_many_pieces_is_refused(content: list[str] | None) -> None:
    message = {"role": "user", "content": content}
    most = MOST_PIECES // (2 if content else 1)
    read_chat(messages=[message] * most)
    error = refusal(CHAT, {"messages": [message] * (most + 1)})
    assert (error.param, error.code) == ("messages", "invalid_value")
    assert str(MOST_PIECES) in error.message


def test_a_smaller_limit_is_named_in_the_refusal() -> None:
    assert "between 1 and 3" in refusal(CHAT, {"n": 4}, max_n=3).message
    assert "the most is 2" in refusal(COMPLETIONS, {"prompt": ["a"] * 3}, max_prompts=2).message
    too_large = refusal(CHAT, {"n": 4}, max_sequences=3)
    assert ("is 4; the most is 3" in too_large.message, too_large.param) == (True, "n")
    assert refusal(COMPLETIONS, {"prompt": ["a"] * 2, "n": 2}, max_sequences=3).param == "n"
    too_many = refusal(COMPLETIONS, {"prompt": ["a"] * 4}, max_sequences=3)
    assert ("is 4; the most is 3" in too_many.message, too_many.param) == (True, "prompt")


@pytest.mark.parametrize("prompt", ["abcd", [1, 2, 3, 4], ["abcd"], [[1, 2, 3, 4]]])
def test_one_prompt_counts_once_whatever_its_form(prompt: object) -> None:
    read(completion(prompt=prompt, n=3), COMPLETIONS, max_sequences=3)
    read(chat(n=3), max_sequences=3)


def test_a_refusal_tells_nothing_of_the_prompt() -> None:
    secret = "my-secret-prompt"
    errors = [
        refusal(CHAT, {"messages": [{"role": "user", "content": {"text": secret}}]}),
        refusal(COMPLETIONS, {"prompt": {secret: secret}}),
        refusal(CHAT, {"messages": [{"role": "user", "content": secret}], "n": secret}),
        refusal(CHAT, {"messages": secret}),
    ]
    assert all(secret not in error.message + str(error.param) for error in errors)


def test_defaults_accept_an_ordinary_request_on_both_endpoints() -> None:
    assert read_chat(temperature=0.7).model == "small"
    assert read_completion(temperature=0.7).model == "small"


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        (CHAT, "response_format"),
        (CHAT, "structured_outputs"),
        (CHAT, "tools"),
        (COMPLETIONS, "response_format"),
        (COMPLETIONS, "structured_outputs"),
    ],
)
def test_what_a_worker_makes_a_grammar_of_is_not_nested_too_deeply(endpoint: Endpoint, field: str) -> None:
    schema: list[Any] = []
    for _ in range(500):
        schema = [schema]
    assert refusal(endpoint, {field: schema}).param == field
    assert field in json.loads(
        sent(read((chat if endpoint is CHAT else completion)(**{field: schema[0]}), endpoint))
    )

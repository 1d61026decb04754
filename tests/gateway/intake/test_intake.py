"""A body becomes a job: the model, the right to it, the bucket, and what the job says and expects."""

from math import ceil
from typing import Any

import pytest

from gateway.errors import BadRequest, ModelNotAllowed, ModelNotFound
from gateway.model import Caller, Endpoint, Incoming, Usage
from tests.gateway.intake.samples import (
    SALT,
    caller,
    chat,
    completion,
    intake,
    read,
    read_chat,
    read_completion,
    sent,
)


def test_a_job_says_what_the_body_asks_for() -> None:
    incoming = Incoming("req-1", Endpoint.CHAT, {})
    acme = caller()
    body = chat(model="gpt-4o-mini", stream=True, stream_options={"include_usage": True}, max_tokens=7, n=2)
    job = intake().read(incoming, body, acme)
    assert (job.id, job.endpoint, job.caller, job.model) == ("req-1", Endpoint.CHAT, acme, "small")
    assert (job.stream, job.wants_usage) == (True, True)
    assert (job.prompt_bytes, job.prompt_tokens) == (2, 1 + 5 + 3)
    assert (job.max_output_tokens, job.max_tokens_given, job.bucket) == (14, True, 0)


def test_the_smallest_body_is_neither_streamed_nor_given_a_maximum() -> None:
    job = read_chat()
    assert (job.stream, job.wants_usage, job.max_tokens_given) == (False, False, False)


@pytest.mark.parametrize("model", ["null", "7", '""', "[]", "{}", "true"])
def test_a_model_that_is_no_name_is_refused(model: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(b'{"messages":[{"role":"user"}],"model":' + model.encode() + b"}")
    assert caught.value.param == "model"
    assert caught.value.code == ("invalid_value" if model == '""' else "invalid_type")


def test_a_missing_model_is_refused() -> None:
    with pytest.raises(BadRequest, match="Missing required parameter: 'model'") as caught:
        read(b'{"messages":[]}')
    assert (caught.value.param, caught.value.code) == ("model", "missing_required_parameter")


def test_an_unknown_model_is_not_found_and_the_answer_says_where_to_look() -> None:
    with pytest.raises(ModelNotFound, match=r"model 'nope' does not exist.*GET /v1/models") as caught:
        read_chat(model="nope")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


@pytest.mark.parametrize("name", ["<script>", "a b", "x" * 201, "a\n", "modèle"])
def test_a_strange_model_name_is_not_repeated(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        read_chat(model=name)
    assert name not in caught.value.message
    assert "The model does not exist" in caught.value.message


@pytest.mark.parametrize("allowed", ["small", "gpt-4o-mini", "*"])
def test_a_tenant_may_use_a_model_listed_by_name_or_by_the_alias_it_asks_for(allowed: str) -> None:
    body = chat(model="gpt-4o-mini")
    assert intake().read(Incoming("r", Endpoint.CHAT, {}), body, caller(allowed)).model == "small"


@pytest.mark.parametrize(("allowed", "asked"), [("plain", "small"), ("gpt-4o-mini", "small")])
def test_a_tenant_may_not_use_a_model_that_is_not_listed(allowed: str, asked: str) -> None:
    with pytest.raises(ModelNotAllowed) as caught:
        intake().read(Incoming("r", Endpoint.CHAT, {}), chat(model=asked), caller(allowed))
    assert (caught.value.param, caught.value.code) == ("model", "model_not_allowed")


@pytest.mark.parametrize(
    ("lengths", "bucket"),
    [
        ([1023], 0),
        ([1024], 1),
        ([1025], 1),
        ([500, 500, 500], 0),
        ([1, 1024, 1], 1),
        ([8191], 1),
        ([8192], 2),
    ],
)
def test_the_longest_prompt_decides_the_bucket_and_an_edge_begins_the_longer(
    lengths: list[int], bucket: int
) -> None:
    job = read_completion(model="unknown-length", prompt=[[1] * length for length in lengths])
    assert (job.bucket, job.prompt_tokens) == (bucket, sum(lengths))


@pytest.mark.parametrize(("tokens", "bucket", "is_long"), [(999, 0, False), (1000, 1, True)])
def test_how_long_a_prompt_is_is_told(tokens: int, bucket: int, is_long: bool) -> None:
    body = completion(model="unknown-length", prompt=[1] * tokens)
    job = read(body, Endpoint.COMPLETIONS, bucket_edges=(1000, 5000), long_from=1000)
    assert (job.bucket, job.is_long) == (bucket, is_long)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"prompt": [1] * 100, "max_tokens": 7}, 107),  # token ids are counted
        ({"prompt": [[1], [1] * 100], "max_tokens": 7, "n": 2}, 107),  # of each sequence, not of all
        ({"prompt": "x" * 400, "max_tokens": 7}, 132),  # an estimate, with a quarter on top
        ({"prompt": [1] * 100}, 116),
    ],
)
def test_a_worker_must_be_long_enough_for_the_longest_sequence(fields: Any, tokens: int) -> None:
    assert read_completion(**fields).context_tokens == tokens


def test_where_no_maximum_is_named_what_is_expected_of_a_chat_counts() -> None:
    job = read_chat()
    assert job.context_tokens == ceil(job.prompt_tokens * 1.25) + job.expected_output_tokens


def test_of_several_prompts_the_longest_counts() -> None:
    body = completion(model="unknown-length", prompt=[[1] * 10, [1] * 1000])
    job = read(body, Endpoint.COMPLETIONS, bucket_edges=(1000,), long_from=1000)
    assert (job.bucket, job.is_long) == (1, True)


@pytest.mark.parametrize(
    ("fields", "sequences"),
    [({}, 1), ({"n": 3}, 3), ({"prompt": ["a", "b"]}, 2), ({"prompt": [[1], [2], [3]], "n": 2}, 6)],
)
def test_each_prompt_has_as_many_sequences_as_asked_for(fields: dict[str, Any], sequences: int) -> None:
    assert read_completion(**fields).sequences == sequences


def test_of_a_new_tenant_an_answer_of_usual_length_is_expected() -> None:
    assert read_chat(model="plain").expected_output_tokens == 256
    assert read_chat(model="plain", max_tokens=7, n=2).expected_output_tokens == 14


def test_what_is_expected_of_an_answer_is_what_earlier_ones_had() -> None:
    room, acme, other = intake(), caller(), caller(id="other")

    def expected(endpoint: Endpoint = Endpoint.CHAT, of: Caller = acme, **fields: Any) -> int:
        body = (chat if endpoint is Endpoint.CHAT else completion)(model="plain", max_tokens=500, **fields)
        return room.read(Incoming("r", endpoint, {}), body, of).expected_output_tokens

    for of, tokens in ((acme, 40), (other, 80)):
        room.learn(room.read(Incoming("r", Endpoint.CHAT, {}), chat(), of), Usage(10, tokens))
    assert (expected(), expected(of=other)) == (40, 80)
    assert expected(Endpoint.COMPLETIONS) == 256  # another endpoint's answers say nothing of these


def test_what_usage_teaches_changes_the_next_estimate() -> None:
    room = intake()
    body = chat(messages=[{"role": "user", "content": "x" * 4096}])

    def estimate() -> int:
        return room.read(Incoming("r", Endpoint.CHAT, {}), body, caller()).prompt_tokens

    before = estimate()
    for _ in range(500):
        room.learn(room.read(Incoming("r", Endpoint.CHAT, {}), body, caller()), Usage(2048, 1))
    assert before == 1024 + 8
    assert estimate() == 2048 + 8


def test_what_one_model_teaches_says_nothing_of_another() -> None:
    room = intake()
    body = chat(messages=[{"role": "user", "content": "x" * 4096}])
    room.learn(room.read(Incoming("r", Endpoint.CHAT, {}), body, caller()), Usage(4096, 1))
    other = chat(model="plain", messages=[{"role": "user", "content": "x" * 4096}])
    assert room.read(Incoming("r", Endpoint.CHAT, {}), other, caller()).prompt_tokens == 1024 + 8


def test_each_caller_is_read_by_the_rules_of_its_tenant() -> None:
    room = intake(allow_logprobs=False)
    trusted, other = caller(allow_logprobs=True, max_output_tokens=7), caller()
    incoming, body = Incoming("r", Endpoint.CHAT, {}), chat(logprobs=True)
    assert room.read(incoming, body, trusted).max_output_tokens == 7
    with pytest.raises(BadRequest):
        room.read(incoming, body, other)
    assert room.read(incoming, chat(), other).max_output_tokens == 256


def test_a_bytearray_is_read_like_bytes() -> None:
    assert sent(read(bytearray(chat()))) == sent(read(chat()))
    assert SALT.encode() in sent(read(bytearray(chat())))

"""Are bodies read, and refused, as vLLM does it?"""

import json
import statistics
from typing import Any

import pytest

from benchmarks.simulator.asked import DEFAULT_COMPLETION_TOKENS, Asked, Model, Refused, read

MODEL = Model("qwen", 1000, 50.0, 0)
HELLO = [{"role": "user", "content": "hello"}]


def completion(**members: Any) -> Asked:
    return read(json.dumps({"model": "qwen", "prompt": "abcd" * 10, **members}).encode(), False, MODEL)


def chat(**members: Any) -> Asked:
    return read(json.dumps({"model": "qwen", "messages": HELLO, **members}).encode(), True, MODEL)


def test_four_bytes_of_text_are_a_token_and_so_is_a_token_id() -> None:
    assert completion(prompt="abcd" * 10).request.prompt_tokens == 10
    assert completion(prompt="é" * 20).request.prompt_tokens == 10
    assert completion(prompt=["abcd" * 10]).request.prompt_tokens == 10
    assert completion(prompt=list(range(10))).request.prompt_tokens == 10
    assert completion(prompt=[[5, 6, 7]]).request.prompt_tokens == 3
    assert completion(prompt="a").request.prompt_tokens == 1


def test_a_conversation_counts_with_its_tools_and_keeps_its_beginning_when_a_turn_is_added() -> None:
    turns = [{"role": "user", "content": "x" * 400}, {"role": "assistant", "content": "y" * 400}]

    first, second = chat(messages=turns[:1]).request, chat(messages=turns).request

    assert first.prompt_tokens == len(json.dumps(turns[:1])) // 4
    assert second.prefix[: len(first.prefix) - 1] == first.prefix[:-1]
    with_tools = chat(messages=turns, tools=[{"type": "function"}]).request
    assert with_tools.prompt_tokens > second.prompt_tokens
    assert with_tools.prefix[0] != second.prefix[0]


def test_prefixes_are_shared_within_a_salt_only() -> None:
    text = "abcd" * 40

    assert completion(prompt=text).request.prefix == completion(prompt=text).request.prefix
    assert completion(prompt=text).request.prefix != completion(prompt=text, cache_salt="acme").request.prefix
    assert len(completion(prompt=text).request.prefix) == 2


def test_with_ignore_eos_an_answer_has_the_tokens_asked_for() -> None:
    assert completion(max_tokens=7, ignore_eos=True).request.output_tokens == 7
    assert completion(ignore_eos=True).request.output_tokens == DEFAULT_COMPLETION_TOKENS
    assert chat(max_tokens=7, ignore_eos=True).request.output_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=9, ignore_eos=True).request.output_tokens == 9
    assert completion(max_tokens=7, max_completion_tokens=9, ignore_eos=True).request.output_tokens == 7


def test_an_answer_ends_where_the_context_does() -> None:
    asked = completion(prompt=[1] * 990, max_tokens=1000, ignore_eos=True)

    assert asked.request.output_tokens == 10
    assert asked.finish_reason == "length"
    unbounded = chat(ignore_eos=True).request
    assert unbounded.output_tokens == 1000 - unbounded.prompt_tokens


def test_without_ignore_eos_the_length_is_drawn_from_the_prompt_and_the_seed() -> None:
    drawn = [chat(messages=[{"content": str(n)}]).request.output_tokens for n in range(400)]

    assert drawn == [chat(messages=[{"content": str(n)}]).request.output_tokens for n in range(400)]
    assert statistics.fmean(drawn) == pytest.approx(50, rel=0.2)
    assert min(drawn) >= 1
    body = json.dumps({"messages": HELLO}).encode()
    other = {read(body, True, Model("qwen", 1000, 50.0, seed)).request.output_tokens for seed in range(9)}
    assert len(other) > 1


def test_an_answer_that_ends_by_itself_says_so() -> None:
    length = chat().request.output_tokens
    assert chat().finish_reason == "stop"
    assert chat(max_tokens=length + 1).finish_reason == "stop"
    assert chat(max_tokens=length).finish_reason == "length"
    assert chat(max_tokens=1).request.output_tokens == 1


def test_how_it_is_to_be_told() -> None:
    plain, streamed = completion(), completion(stream=True)
    with_usage = completion(stream=True, stream_options={"include_usage": True})

    assert [asked.stream for asked in (plain, streamed, with_usage)] == [False, True, True]
    assert [asked.include_usage for asked in (plain, streamed, with_usage)] == [False, False, True]
    assert [asked.chat for asked in (plain, chat())] == [False, True]


def test_of_two_members_with_one_name_the_last_counts() -> None:
    body = b'{"prompt":"abcd","stream":true,"max_tokens":3,"stream_options":{"include_usage":false},'
    body += b'"max_tokens":5,"ignore_eos":true,"stream_options":{"include_usage":true},"unknown":1}'

    asked = read(body, False, MODEL)

    assert (asked.request.output_tokens, asked.include_usage) == (5, True)


@pytest.mark.parametrize(
    ("body", "is_chat", "status", "kind", "param"),
    [
        (b"{", False, 400, "Bad Request", "body"),
        (b"[]", False, 400, "Bad Request", "body"),
        (b'{"prompt":"a","max_tokens":"x"}', False, 400, "Bad Request", "body"),
        (b'{"prompt":"a","stream_options":{}}', False, 400, "Bad Request", "body"),
        (b'{"model":"other","prompt":"a"}', False, 404, "NotFoundError", "model"),
        (b'{"prompt":"a","n":2}', False, 400, "BadRequestError", "n"),
        (b'{"prompt":"a","max_tokens":0}', False, 400, "BadRequestError", None),
        (b'{"prompt":"a","max_tokens":1001}', False, 400, "BadRequestError", None),
        (b"{}", False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":""}', False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":[]}', False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":["a","b"]}', False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":[1,-2]}', False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":[1,true]}', False, 400, "BadRequestError", "prompt"),
        (b'{"prompt":[4294967296]}', False, 400, "BadRequestError", "prompt"),
        (b"{}", True, 400, "Bad Request", "body.messages"),
        (b'{"messages":[ ]}', True, 400, "BadRequestError", "messages"),
        (b'{"messages":"hello"}', True, 400, "BadRequestError", "messages"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_vllms_words(
    body: bytes, is_chat: bool, status: int, kind: str, param: str | None
) -> None:
    with pytest.raises(Refused) as refused:
        read(body, is_chat, MODEL)

    assert (refused.value.status, refused.value.kind, refused.value.param) == (status, kind, param)


def test_a_prompt_must_leave_room_for_one_token() -> None:
    assert completion(prompt=[1] * 999).request.output_tokens == 1
    with pytest.raises(Refused, match=r"maximum context length is 1000 tokens.* 1000 input") as refused:
        completion(prompt=[1] * 1000)

    assert (refused.value.status, refused.value.param) == (400, "input_tokens")

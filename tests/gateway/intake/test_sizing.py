"""Estimates: every legal form of a prompt has a size, images are not text, and usage corrects the average."""

import json
from typing import Any

import pytest

from gateway.errors import BadRequest
from gateway.intake.sizing import (
    FIRST_BYTES_PER_TOKEN,
    LEAST_BYTES_PER_TOKEN,
    MEDIUM_TOKENS,
    MESSAGE_TOKENS,
    MOST_BYTES_PER_TOKEN,
    REPLY_TOKENS,
    Averages,
)
from tests.gateway.intake.samples import chat, read, read_chat, read_completion

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500_000}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}


def json_bytes(value: object) -> int:
    return len(json.dumps(value))


@pytest.mark.parametrize(
    ("prompt", "tokens", "text_bytes"),
    [
        ("12345678", 2, 8),
        ("123456789", 3, 9),
        ("", 0, 0),
        ("日本語", 3, 9),
        (["12345678"], 2, 8),
        (["1", "12345", ""], 1 + 2 + 0, 6),
        (["é", "日"], 1 + 1, 5),
        ([1, 2, 3], 3, 0),
        ([0], 1, 0),
        ([[1, 2, 3]], 3, 0),
        ([[1, 2], [3], []], 3, 0),
        ([2**64, 1], 2, 0),
    ],
)
def test_every_form_of_a_completion_prompt_is_sized(prompt: object, tokens: int, text_bytes: int) -> None:
    job = read_completion(prompt=prompt)
    assert (job.prompt_tokens, job.prompt_bytes, job.bucket) == (tokens, text_bytes, 0)


@pytest.mark.parametrize(
    ("message", "text_bytes", "media"),
    [
        ({"content": "12345"}, 5, 0),
        ({"content": ""}, 0, 0),
        ({"content": "日本語"}, 9, 0),
        ({"content": None}, 0, 0),
        ({}, 0, 0),
        ({"content": []}, 0, 0),
        ({"content": ["12345", "日"]}, 8, 0),
        ({"content": [{"type": "text", "text": "12345"}, {"type": "text", "text": ""}]}, 5, 0),
        ({"content": [{"type": "refusal", "refusal": "123"}]}, 3, 0),
        ({"content": [{"type": "thinking", "thinking": "1234"}]}, 4, 0),
        ({"content": [{"type": "text", "text": "12345"}, IMAGE]}, 5, 1),
        ({"content": [IMAGE, AUDIO]}, 0, 2),
        ({"content": [{"type": "hologram", "beam": [1]}]}, 0, 1),
        ({"content": [{"image_url": "data:image/png;base64,QUJD"}]}, 0, 1),
        ({"content": None, "tool_calls": [CALL]}, json_bytes([CALL]), 0),
        ({"content": None, "tool_calls": None}, 0, 0),
        ({"role": "tool", "tool_call_id": "1", "content": "12345"}, 5, 0),
        ({"role": "tool", "tool_call_id": "1", "content": None}, 0, 0),
        ({"content": "12345", "name": "Ada"}, 8, 0),
        ({"content": "12345", "reasoning": "123"}, 5 + 5, 0),
        ({"content": "12345", "reasoning_content": "123"}, 5 + 5, 0),
        ({"role": "developer", "content": "12345", "tools": [CALL]}, 5 + json_bytes([CALL]), 0),
        ({"role": "anything", "content": "12345"}, 5, 0),
    ],
)
def test_every_form_of_a_message_is_sized(message: dict[str, Any], text_bytes: int, media: int) -> None:
    job = read_chat(messages=[{"role": "user"} | message])
    text_tokens = -(-text_bytes // 4)
    assert job.prompt_tokens == text_tokens + MESSAGE_TOKENS + REPLY_TOKENS + media * MEDIUM_TOKENS
    assert job.prompt_bytes == (0 if media else text_bytes)


@pytest.mark.parametrize(
    ("fields", "text_bytes"),
    [
        ({"tools": [CALL]}, json_bytes([CALL])),
        ({"tools": None}, 0),
        ({"functions": [CALL]}, 0),
        ({"documents": [{"text": "a"}]}, json_bytes([{"text": "a"}])),
        ({"chat_template_kwargs": {"a": "b"}}, json_bytes({"a": "b"})),
        ({"response_format": {"type": "json_object"}}, 0),
    ],
)
def test_what_the_template_renders_counts_as_text(fields: dict[str, Any], text_bytes: int) -> None:
    assert read_chat(**fields).prompt_bytes == 2 + text_bytes


def test_every_message_costs_its_share_of_the_template() -> None:
    job = read_chat(messages=[{"role": "user", "content": "1234"}] * 3)
    assert job.prompt_tokens == 3 * (1 + MESSAGE_TOKENS) + REPLY_TOKENS


def test_escapes_in_a_prompt_count_as_the_characters_they_stand_for() -> None:
    body = b'{"model":"small","messages":[{"role":"user","content":"\\u65e5\\n\\ud83d\\ude00"}]}'
    assert read(body).prompt_bytes == 3 + 1 + 4


def test_an_image_does_not_make_a_long_prompt() -> None:
    content = [{"type": "text", "text": "What is in this image?"}, IMAGE]
    assert read_chat(messages=[{"role": "user", "content": content}]).bucket == 0


def test_token_ids_beyond_the_length_of_the_model_are_refused() -> None:
    for prompt in ([1] * 2049, [[1], [1] * 2049]):
        with pytest.raises(BadRequest, match=r"maximum context length is 2048 tokens.* 2049") as caught:
            read_completion(prompt=prompt)
        assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"prompt": [1] * 2048}, 2048),
        ({"prompt": [[1] * 2048] * 2}, 4096),
        ({"prompt": "x" * 99_999}, 25_000),
        ({"prompt": [1] * 5000, "model": "unknown-length"}, 5000),
        ({"prompt": [1] * 5000, "truncate_prompt_tokens": 100}, 100),
        ({"prompt": [1] * 50, "truncate_prompt_tokens": 100}, 50),
        ({"prompt": [1] * 50, "truncate_prompt_tokens": 0}, 0),
        ({"prompt": [1] * 5000, "truncate_prompt_tokens": -1}, 2048),
        ({"prompt": "x" * 99_999, "truncate_prompt_tokens": -1}, 2048),
        ({"prompt": ["x" * 400, "x"], "truncate_prompt_tokens": 10}, 11),
        ({"prompt": [1] * 5000, "truncate_prompt_tokens": -1, "model": "unknown-length"}, 5000),
    ],
)
def test_long_prompts_that_may_fit_pass(fields: dict[str, Any], tokens: int) -> None:
    assert read_completion(**fields).prompt_tokens == tokens


def test_a_prompt_that_the_worker_cuts_teaches_nothing() -> None:
    assert read_completion(prompt="x" * 400, truncate_prompt_tokens=10).prompt_bytes == 0
    assert read_completion(prompt="x" * 400).prompt_bytes == 400


def test_a_chat_is_cut_like_a_completion() -> None:
    assert read(chat(truncate_prompt_tokens=5)).prompt_tokens == 5


def test_a_chat_without_text_is_not_taken_for_token_ids() -> None:
    content = [{"type": "input_audio"}] * 4
    assert read_chat(messages=[{"role": "user", "content": content}]).prompt_tokens > 2048


@pytest.mark.parametrize("ratio", [1.5, 3.0, 4.0, 6.0])
def test_the_average_converges_to_what_usage_says(ratio: float) -> None:
    averages = Averages()
    for _ in range(500):
        averages.learn("m", 8192, round(8192 / ratio))
    assert averages.bytes_per_token("m") == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize(
    ("text_bytes", "tokens", "bound"),
    [(10**6, 1, MOST_BYTES_PER_TOKEN), (8192, 10**9, LEAST_BYTES_PER_TOKEN)],
)
def test_the_average_stays_within_bounds(text_bytes: int, tokens: int, bound: float) -> None:
    averages = Averages()
    for _ in range(2000):
        averages.learn("m", text_bytes, tokens)
    learned = averages.bytes_per_token("m")
    assert learned == pytest.approx(bound, rel=0.01)
    assert LEAST_BYTES_PER_TOKEN <= learned <= MOST_BYTES_PER_TOKEN


@pytest.mark.parametrize(("text_bytes", "tokens"), [(0, 10), (10, 0), (10, -1)])
def test_a_request_that_tells_nothing_changes_nothing(text_bytes: int, tokens: int) -> None:
    averages = Averages()
    averages.learn("m", text_bytes, tokens)
    assert averages.bytes_per_token("m") == FIRST_BYTES_PER_TOKEN


def test_short_prompts_weigh_little() -> None:
    averages = Averages()
    for _ in range(100):
        averages.learn("m", 8192, 2048)
        averages.learn("m", 8, 30)
    assert averages.bytes_per_token("m") == pytest.approx(4.0, rel=0.02)


def test_one_long_prompt_is_one_voice() -> None:
    averages = Averages()
    for _ in range(100):
        averages.learn("m", 4096, 1024)
    averages.learn("m", 10**7, 10**7)
    assert averages.bytes_per_token("m") > 3.7


def test_old_requests_are_forgotten() -> None:
    averages = Averages()
    for _ in range(10_000):
        averages.learn("m", 8192, 8192)
    for _ in range(500):
        averages.learn("m", 8192, 2048)
    assert averages.bytes_per_token("m") == pytest.approx(4.0, rel=0.01)

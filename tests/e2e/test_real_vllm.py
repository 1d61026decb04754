"""Does the gateway serve real vLLM as vLLM itself would, and does the engine notice what callers do?"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai.types import CompletionUsage

from tests.e2e.conftest import RealStack, metric

# The first test waits for the programs to start, and one for a worker to come back.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"max_tokens": 1500, "ignore_eos": True}  # more than a minute on a CPU
GONE_WITHIN_S = 2.0
RESTART_LIMIT_S = 400.0
POLL_S = 0.05


def eventually(holds: Callable[[], bool], limit_s: float) -> bool:
    """Whether a state that only polling shows is reached in time."""
    deadline_s = time.monotonic() + limit_s
    while not (held := holds()) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    return held


def tokens_total(stack: RealStack, direction: str) -> float:
    return metric(stack.admin_url, "gateway_tokens_total", model=stack.model, direction=direction)


def test_chat_is_answered_with_the_worker_s_own_text_and_usage(real_stack: RealStack) -> None:
    request: Any = {"model": real_stack.model, "messages": QUESTION, "temperature": 0, "max_tokens": 16}
    with real_stack.client() as gateway, real_stack.worker_client() as worker:
        through = gateway.chat.completions.create(**request)
        direct = worker.chat.completions.create(**request)
    assert "Paris" in (through.choices[0].message.content or "")
    assert through.choices == direct.choices
    assert through.usage == direct.usage


def test_completion_is_answered_with_the_worker_s_own_text_and_usage(real_stack: RealStack) -> None:
    request: Any = {"model": real_stack.model, "prompt": ["One, two,", "A, B,"], "temperature": 0, "n": 1}
    with real_stack.client() as gateway, real_stack.worker_client() as worker:
        through = gateway.completions.create(**request, max_tokens=8)
        direct = worker.completions.create(**request, max_tokens=8)
    assert through.choices == direct.choices
    assert through.usage == direct.usage


def test_streamed_text_and_usage_equal_the_worker_s_own(real_stack: RealStack) -> None:
    request: Any = {"model": real_stack.model, "messages": QUESTION, "temperature": 0, "max_tokens": 16}

    def streamed(client: openai.OpenAI) -> tuple[str, list[CompletionUsage]]:
        with (
            client,
            client.chat.completions.create(
                **request, stream=True, stream_options={"include_usage": True}
            ) as stream,
        ):
            chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        return text, [chunk.usage for chunk in chunks if chunk.usage]

    assert streamed(real_stack.client()) == streamed(real_stack.worker_client())


@pytest.mark.case("S7")
def test_usage_event_stays_hidden_from_a_caller_who_did_not_ask(real_stack: RealStack) -> None:
    with (
        real_stack.client() as client,
        client.chat.completions.create(
            model=real_stack.model, messages=QUESTION, max_tokens=8, stream=True
        ) as stream,
    ):
        chunks = list(stream)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("streamed", [False, True])
def test_metered_tokens_equal_the_usage_that_vllm_reports(real_stack: RealStack, streamed: bool) -> None:
    request: Any = {"model": real_stack.model, "messages": QUESTION, "temperature": 0, "max_tokens": 16}
    with real_stack.worker_client() as worker:
        usage = worker.chat.completions.create(**request).usage
    assert usage is not None
    prompt, completion = tokens_total(real_stack, "prompt"), tokens_total(real_stack, "completion")
    with real_stack.client() as client:
        answer = client.chat.completions.create(**request, stream=streamed)
        if isinstance(answer, openai.Stream):
            for _ in answer:
                pass
    assert tokens_total(real_stack, "prompt") - prompt == usage.prompt_tokens
    assert tokens_total(real_stack, "completion") - completion == usage.completion_tokens


def test_tools_reach_the_worker_and_the_call_comes_back(real_stack: RealStack) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request: Any = {
        "model": real_stack.model,
        "messages": [{"role": "user", "content": "How is the weather in Rome?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "max_tokens": 64,
        "temperature": 0,
    }

    def called(client: openai.OpenAI) -> Any:
        with client:
            (call,) = client.chat.completions.create(**request).choices[0].message.tool_calls or []
        return call.model_copy(update={"id": "random"})

    through = called(real_stack.client())
    assert through.function.name == "weather"
    assert through == called(real_stack.worker_client())


def test_alias_is_served_by_the_model_behind_it(real_stack: RealStack) -> None:
    with real_stack.client() as client:
        answer = client.chat.completions.create(
            model="gpt-4o-mini", messages=QUESTION, temperature=0, max_tokens=16
        )
        assert {"gpt-4o-mini", real_stack.model} <= {model.id for model in client.models.list()}
    assert "Paris" in (answer.choices[0].message.content or "")


def test_caller_s_cache_salt_is_overruled_by_one_that_vllm_accepts(real_stack: RealStack) -> None:
    request: Any = {"model": real_stack.model, "messages": QUESTION, "max_tokens": 4}
    refused_by_vllm = {"cache_salt": "no/slash"}
    with real_stack.worker_client() as worker, pytest.raises(openai.BadRequestError, match="cache_salt"):
        worker.chat.completions.create(**request, extra_body=refused_by_vllm)
    with real_stack.client() as client:
        assert client.chat.completions.create(**request, extra_body=refused_by_vllm).choices


@pytest.mark.case("E1")
def test_worker_s_refusal_comes_back_unchanged(real_stack: RealStack) -> None:
    body = {"model": real_stack.model, "messages": QUESTION, "temperature": -1}
    key = {"authorization": f"Bearer {real_stack.key}"}
    path = "/v1/chat/completions"
    through = httpx.post(real_stack.gateway_url + path, json=body, headers=key, trust_env=False)
    direct = httpx.post(real_stack.worker_urls[0] + path, json=body, trust_env=False)
    assert through.status_code == 400
    assert through.content == direct.content


@pytest.mark.case("E1")
def test_error_event_at_the_start_of_a_stream_becomes_the_status(real_stack: RealStack) -> None:
    out_of_vocabulary = {"allowed_token_ids": [10_000_000]}
    request: Any = {"model": real_stack.model, "messages": QUESTION, "stream": True, "max_tokens": 4}
    with real_stack.worker_client() as worker:
        raw = worker.chat.completions.with_raw_response.create(**request, extra_body=out_of_vocabulary)
        assert raw.status_code == 200, "vLLM says 200 before it looks"
    with real_stack.client() as client, pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**request, extra_body=out_of_vocabulary)


@pytest.mark.case("S1", "S2")
@pytest.mark.parametrize("streamed", [False, True])
def test_engine_stops_when_the_caller_hangs_up(real_stack: RealStack, streamed: bool) -> None:
    assert eventually(lambda: real_stack.running() == 0, GONE_WITHIN_S)
    body = json.dumps({"model": real_stack.model, "messages": QUESTION, "stream": streamed, **ENDLESS})
    address = urlsplit(real_stack.gateway_url)
    with socket.create_connection((address.hostname, address.port)) as caller:
        caller.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {real_stack.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert eventually(lambda: real_stack.running() == 1, limit_s=30)
        if streamed:
            assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
    assert eventually(lambda: real_stack.running() == 0, GONE_WITHIN_S)


@pytest.mark.case("S5")
def test_ending_worker_gets_nothing_new_and_killed_one_is_restarted_while_the_other_serves(
    real_stack: RealStack,
) -> None:
    request: Any = {"model": real_stack.model, "messages": QUESTION, "max_tokens": 16}

    def serving_worker(_: int) -> str:
        with real_stack.client() as client:
            return client.chat.completions.with_raw_response.create(**request).headers["x-gateway-worker"]

    with (
        real_stack.client() as client,
        client.chat.completions.create(
            model=real_stack.model, messages=QUESTION, stream=True, extra_body=ENDLESS
        ) as stream,
    ):
        next(stream)
        victim = stream.response.headers["x-gateway-worker"]
        process = real_stack.worker_process(int(victim.removeprefix("w")))
        os.kill(process, signal.SIGTERM)  # it says that it is well, and declines what is new

        def has_declined() -> bool:
            with ThreadPoolExecutor(4) as callers:
                list(callers.map(serving_worker, range(4)))  # none of which fails
            counted = {"worker": victim, "kind": "declined"}
            return metric(real_stack.admin_url, "gateway_worker_failures_total", **counted) > 0

        assert eventually(has_declined, limit_s=20)
        next(stream)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(openai.APIError) as lost:
            list(stream)
    assert lost.value.code == "worker_failed"

    (survivor,) = {"w0", "w1"} - {victim}
    assert {serving_worker(number) for number in range(4)} == {survivor}

    def is_up() -> bool:
        return metric(real_stack.admin_url, "gateway_worker_up", worker=victim) == 1

    assert eventually(lambda: not is_up(), limit_s=30)
    assert eventually(is_up, RESTART_LIMIT_S)
    with ThreadPoolExecutor(4) as callers:
        assert victim in set(callers.map(serving_worker, range(8)))

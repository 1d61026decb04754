"""Does the official SDK work unaided: answers, streams, retries and every error class?"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.conftest import KEY, MODEL
from tests.e2e.callers import COST, QUESTION
from tests.e2e.observed import NOWHERE, STEADY_PROBES, TENANT, Observed, observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, answer_of, plain_answer
from tests.vllm_answers import TOKEN

pytestmark = pytest.mark.usefixtures("either_lane")

MESSAGES: Any = [{"role": "user", "content": "hi"}]
CHAT: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 3}
TEXT: Any = {"model": MODEL, "prompt": "hi", "max_tokens": 3}


@contextmanager
def blocking(gateway: Observed, **more: Any) -> Iterator[OpenAI]:
    """The SDK's other client; to be used in a thread."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, **more) as client:
        yield client


async def test_chat_and_completions_are_answered_and_tell_their_request_id() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        chat = await client.chat.completions.create(**CHAT)
        text = await client.completions.create(**TEXT)
        assert chat.choices[0].message.content == text.choices[0].text == 3 * TOKEN
        assert chat.usage is not None
        assert chat.usage.total_tokens == PROMPT_TOKENS + 3
        lines = await gateway.idle_lines()
        assert [line["request_id"] for line in lines] == [chat._request_id, text._request_id]


@pytest.mark.case("S7")
async def test_streams_are_read_to_their_end_and_tell_their_headers() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        chat = await client.chat.completions.create(**CHAT, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in chat]
        assert "".join(pieces) == 3 * TOKEN
        text = await client.completions.create(**TEXT, stream=True)
        assert [chunk.choices[0].text async for chunk in text] == 3 * [TOKEN]
        usage = {"include_usage": True}
        counted = await client.chat.completions.create(**CHAT, stream=True, stream_options=usage)  # type: ignore[call-overload]
        assert [chunk.usage.total_tokens async for chunk in counted if chunk.usage] == [PROMPT_TOKENS + 3]
        lines = await gateway.idle_lines()
        ids = [stream.response.headers["x-request-id"] for stream in (chat, text, counted)]
        assert [line["request_id"] for line in lines] == ids


async def test_the_blocking_client_is_served_alike() -> None:
    def ask(client: OpenAI) -> list[str | None]:
        chunks = client.chat.completions.create(**CHAT, stream=True)
        return [
            client.chat.completions.create(**CHAT).choices[0].message.content,
            client.completions.create(**TEXT).choices[0].text,
            "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
            "".join(chunk.choices[0].text for chunk in client.completions.create(**TEXT, stream=True)),
        ]

    async with FakeWorker() as worker, observed(worker) as gateway:
        with blocking(gateway) as client:
            assert await asyncio.to_thread(ask, client) == [3 * TOKEN] * 4
        await gateway.ended(*["ok"] * 4, requests=4, tokens=4 * (PROMPT_TOKENS + 3))


async def test_raw_responses_show_the_rate_limits_and_parse() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(**CHAT)
        assert raw.parse().choices[0].message.content == 3 * TOKEN
        assert int(raw.headers["x-ratelimit-remaining-requests"]) == TENANT["requests_per_minute"] - 1  # type: ignore[operator]
        assert raw.headers["x-ratelimit-reset-requests"] == "60ms"
        async with client.completions.with_streaming_response.create(**TEXT) as response:
            assert response.headers["x-gateway-worker"] == "w0"
            assert (await response.parse()).choices[0].text == 3 * TOKEN
        async with client.completions.with_streaming_response.create(**TEXT, stream=True) as response:
            lines = [line async for line in response.iter_lines() if line]
            assert lines[-1] == "data: [DONE]"
        for request in worker.requests:
            assert not [name for name in request.headers if name.startswith("x-stainless")]


async def test_the_stream_helper_puts_the_whole_answer_together() -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        async with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
            kinds = {event.type async for event in stream}
            final = await stream.get_final_completion()
        assert {"chunk", "content.delta", "content.done"} <= kinds
        assert final.choices[0].message.content == 8 * TOKEN


@pytest.mark.case("B1")
async def test_fields_that_only_vllm_knows_reach_the_worker() -> None:
    extra = {
        "chat_template_kwargs": {"enable_thinking": False},
        "structured_outputs": {"regex": "a+", "nested": [None, [], {}]},
        "top_k": 20,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "stop_token_ids": [1, 2],
        "skip_special_tokens": False,
        "include_reasoning": True,
        "add_generation_prompt": True,
        "invented": {"a": {"b": None}},
    }
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with FakeWorker() as worker, observed(worker) as gateway, gateway.client() as client:
        await client.chat.completions.create(**CHAT, tools=tools, extra_body=extra)
        [request] = worker.requests
        sent = request.json()
        del sent["cache_salt"]
        assert sent == {**CHAT, **extra, "tools": tools}


Waits = Callable[[float], None]


def sleeping(monkeypatch: pytest.MonkeyPatch, on_wait: Waits) -> None:
    """Lets the SDK's pauses between its tries pass at once, and tells of each."""

    async def sleep(seconds: float) -> None:
        on_wait(seconds)

    monkeypatch.setattr("openai._base_client.anyio.sleep", sleep)


@pytest.mark.case("L4")
async def test_a_retry_comes_after_the_stated_time_and_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    tenants = [{"id": "acme", "requests_per_minute": 7}]
    async with FakeWorker() as worker, observed(worker, tenants=tenants) as gateway:

        def wait(seconds: float) -> None:
            waits.append(seconds)
            gateway.clock.now_s += seconds

        sleeping(monkeypatch, wait)
        async with gateway.client(max_retries=1) as client:
            for _ in range(7):
                await client.completions.create(**QUESTION)
            answer = await client.completions.with_raw_response.create(**QUESTION)
        assert answer.retries_taken == 1
        assert waits == [pytest.approx(8.572)]  # 60 s / 7, in whole milliseconds: more exact than retry-after
        assert len(worker.requests) == 8


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (404, 1), (429, 3), (500, 3), (503, 3)], ids=str)
async def test_the_sdk_tries_again_only_where_that_can_help(
    monkeypatch: pytest.MonkeyPatch, status: int, tries: int
) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "no", "code": status}}, status)

    sleeping(monkeypatch, lambda seconds: None)
    async with FakeWorker(script) as worker, observed(worker) as gateway:
        async with gateway.client(max_retries=2) as client:
            with pytest.raises(openai.APIStatusError):
                await client.completions.create(**QUESTION)
        assert len(worker.requests) == tries


async def test_a_worker_that_timed_out_is_not_asked_again_by_the_sdk() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with (
        FakeWorker(silent) as worker,
        observed(worker, upstream={"first_byte_timeout_s": 0.2}) as gateway,
        gateway.client(max_retries=2) as client,
    ):
        with pytest.raises(openai.InternalServerError) as failure:
            await client.completions.create(**QUESTION)
        assert (failure.value.status_code, failure.value.code) == (504, "worker_timeout")
        assert len(worker.requests) == 1


async def answer_as_told(request: Received, reply: Reply) -> None:
    """Answers with the status that the request's `user` names; 504 is silence."""
    status = int(request.json().get("user") or 200)
    if status == 504:
        await reply.peer_closed()
    elif status == 200:
        await plain_answer(request, reply)
    else:
        await reply.json({}, status)


ERRORS: list[tuple[type[openai.APIStatusError], int, str, dict[str, Any], dict[str, Any]]] = [
    (openai.BadRequestError, 400, "invalid_value", {"n": 99}, {}),
    (openai.AuthenticationError, 401, "invalid_api_key", {}, {"authorization": "Bearer sk-no"}),
    (openai.PermissionDeniedError, 403, "model_not_allowed", {"model": "other"}, {}),
    (openai.NotFoundError, 404, "model_not_found", {"model": "no"}, {}),
    (openai.APIStatusError, 413, "body_too_large", {"prompt": "x" * 5000}, {}),
    (openai.APIStatusError, 415, "unsupported_media_type", {}, {"content-type": "text/plain"}),
    (openai.RateLimitError, 429, "rate_limit_exceeded", {"max_tokens": 2000}, {}),
    (openai.InternalServerError, 502, "worker_failed", {"user": "500"}, {}),
    (openai.InternalServerError, 503, "server_is_overloaded", {"user": "503"}, {}),
    (openai.InternalServerError, 504, "worker_timeout", {"user": "504"}, {}),
]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_every_error_is_raised_as_its_class_with_code_type_and_request_id(stream: bool) -> None:
    async with FakeWorker(answer_as_told) as worker:
        sections: dict[str, Any] = {
            "server": {"max_body_bytes": 4096},
            "upstream": {"first_byte_timeout_s": 0.2},
            "models": [{"name": MODEL}, {"name": "other"}],
            "workers": [
                {"id": "w0", "url": worker.url, "model": MODEL},
                {"id": "w1", "url": NOWHERE, "model": "other"},
            ],
            "tenants": [{"id": "acme", "models": [MODEL], "tokens_per_minute": 1000}],
        }
        async with observed(worker, **sections) as gateway, gateway.client() as client:
            for kind, status, code, body, headers in ERRORS:
                asked = {**QUESTION, **body, "stream": stream}
                with pytest.raises(openai.APIStatusError) as raised:
                    await client.completions.create(**asked, extra_headers=headers)
                error = raised.value
                assert type(error) is kind
                assert (error.status_code, error.code) == (status, code)
                assert error.type
                assert error.request_id
                assert error.message
            lines = await gateway.idle_lines()
            codes = [code for _, _, code, _, _ in ERRORS]
            assert [line["outcome"] for line in lines] == [*codes[:-1], "first_byte_timeout"]


async def test_the_blocking_client_raises_the_same() -> None:
    def ask(client: OpenAI) -> openai.APIStatusError:
        with pytest.raises(openai.NotFoundError) as raised:
            client.completions.create(model="no", prompt="hi")
        return raised.value

    async with FakeWorker() as worker, observed(worker) as gateway:
        with blocking(gateway) as client:
            error = await asyncio.to_thread(ask, client)
        assert (error.code, error.type) == ("model_not_found", "invalid_request_error")
        assert error.request_id


async def test_a_worker_out_of_reach_raises_with_code_and_request_id() -> None:
    async with FakeWorker() as worker, observed(worker, fleet=STEADY_PROBES) as gateway:
        await worker.stop()
        async with gateway.client() as client:
            with pytest.raises(openai.InternalServerError) as raised:
                await client.completions.create(**QUESTION)
        error = raised.value
        assert (error.status_code, error.code, error.type) == (502, "worker_failed", "server_error")
        assert error.request_id


async def test_connections_are_reused_by_streams_and_plain_calls() -> None:
    async with FakeWorker(answer_of(8)) as worker, observed(worker) as gateway, gateway.client() as client:
        for _ in range(3):
            await client.completions.create(**QUESTION)
            async for _ in await client.completions.create(**QUESTION, stream=True):
                pass
        await gateway.ended(*["ok"] * 6, requests=6, tokens=6 * COST)
        assert {request.connection for request in worker.requests} == {worker.requests[0].connection}

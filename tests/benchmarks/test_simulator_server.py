"""Does a simulated worker answer like vLLM on a real socket: SDK, streams, refusals, probes, hang-ups?"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from benchmarks.simulator.asked import Model
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.request import Limits
from benchmarks.simulator.server import Options, serving
from benchmarks.simulator.wire import TOKEN

FAST = Options(
    model=Model("qwen", 4096, 50.0, 0),
    limits=Limits(max_model_len=4096),
    costs=Costs(0.0, 0.001, 0.0, 0.0, 0.0, 0.0, 0.0),
    speed=10.0,
)
# An answer of 1,000 tokens takes longer than any test.
SLOW = replace(FAST, costs=replace(FAST.costs, step_s=1.0), speed=5.0)
PROMPT = {"model": "qwen", "prompt": "abcd" * 40, "ignore_eos": True}
LONG = {**PROMPT, "max_tokens": 1000}
GUARD_S = 60.0


@contextlib.asynccontextmanager
async def worker(options: Options = FAST) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = "http://{}:{}".format(*listener.getsockname())
    async with (
        serving(options, listener),
        httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as client,
    ):
        yield client


def sdk(client: httpx.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0)


async def metrics(client: httpx.AsyncClient) -> dict[str, float]:
    """By name; of vLLM's series those with its labels."""
    lines = (await client.get("/metrics")).text.replace('{engine="0",model_name="qwen"}', "").splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[0] != "#"
    }


async def until(client: httpx.AsyncClient, holds: Callable[[dict[str, float]], bool]) -> None:
    async with asyncio.timeout(GUARD_S):
        while not holds(await metrics(client)):  # noqa: ASYNC110 - it is another program's to know
            await asyncio.sleep(0.005)


def events(text: str) -> list[Any]:
    *told, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in told]


async def test_the_sdk_gets_chats_plain_and_streamed() -> None:
    async with worker() as client, sdk(client) as caller:
        asked: dict[str, Any] = {"model": "qwen", "messages": [{"role": "user", "content": "hello"}]}
        asked |= {"max_tokens": 3, "extra_body": {"ignore_eos": True}}
        plain = await caller.chat.completions.create(**asked)
        stream = await caller.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        *chunks, last = [chunk async for chunk in stream]

    assert plain.choices[0].message.content == TOKEN * 3
    assert plain.choices[0].finish_reason == "length"
    assert plain.usage == last.usage
    assert (last.usage.completion_tokens, last.choices) == (3, [])
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", TOKEN, TOKEN, TOKEN]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "length"]


async def test_the_sdk_gets_completions_plain_and_streamed() -> None:
    async with worker() as client, sdk(client) as caller:
        asked: dict[str, Any] = {
            "model": "qwen",
            "prompt": [5, 6, 7],
            "max_tokens": 2,
            "extra_body": {"ignore_eos": True},
        }
        plain = await caller.completions.create(**asked)
        chunks = [chunk async for chunk in await caller.completions.create(**asked, stream=True)]

    assert (plain.choices[0].text, plain.object) == (TOKEN * 2, "text_completion")
    assert plain.usage is not None
    assert (plain.usage.prompt_tokens, plain.usage.completion_tokens, plain.usage.total_tokens) == (3, 2, 5)
    assert [(chunk.choices[0].text, chunk.choices[0].finish_reason) for chunk in chunks] == [
        (TOKEN, None),
        (TOKEN, "length"),
    ]


async def test_an_answer_of_one_token_is_whole() -> None:
    async with worker() as client:
        answer = await client.post("/v1/completions", json={**PROMPT, "max_tokens": 1, "stream": True})

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    (event,) = events(answer.text)
    assert (event["choices"][0]["text"], event["choices"][0]["finish_reason"]) == (TOKEN, "length")


async def test_usage_tells_how_much_of_the_prompt_was_cached_under_its_salt() -> None:
    async with worker() as client:
        cached = []
        for salt in ("one", "one", "other"):
            answer = await client.post("/v1/completions", json={**PROMPT, "cache_salt": salt})
            cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached == [0, 32, 0]


async def test_an_answer_has_the_name_of_its_request_or_one_of_its_own() -> None:
    async with worker() as client:
        named = await client.post("/v1/completions", json=PROMPT, headers={"x-request-id": "abc"})
        ids = {(await client.post("/v1/completions", json=PROMPT)).json()["id"] for _ in range(2)}

    assert named.json()["id"] == "cmpl-abc"
    assert len(ids) == 2
    assert all(len(identity) == len("cmpl-") + 32 for identity in ids)


async def test_a_refusal_has_vllms_shape_and_the_connection_goes_on() -> None:
    async with worker() as client:
        refused = await client.post("/v1/completions", json={"model": "qwen", "prompt": [1] * 4096})
        answered = await client.post("/v1/completions", json=PROMPT)

    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("BadRequestError", "input_tokens", 400)
    assert "maximum context length is 4096 tokens" in error["message"]
    assert answered.status_code == 200


async def test_more_unfinished_requests_than_allowed_are_answered_503() -> None:
    async with worker(replace(SLOW, max_queued=1)) as client:
        async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}):
            refused = await client.post("/v1/completions", json=PROMPT)
        await until(client, lambda now: now["vllm:num_requests_running"] == 0)

    assert refused.status_code == 503
    assert (refused.json()["error"]["type"], refused.json()["error"]["code"]) == ("Service Unavailable", 503)


@pytest.mark.parametrize("stream", [True, False])
async def test_who_hangs_up_stops_the_engine(stream: bool) -> None:
    async with worker(SLOW) as client:
        asked = asyncio.create_task(client.post("/v1/completions", json={**LONG, "stream": stream}))
        await until(client, lambda now: now["vllm:num_requests_running"] == 1)
        asked.cancel()
        await until(client, lambda now: now["vllm:num_requests_running"] == 0)
        now = await metrics(client)

    assert (now["vllm:num_requests_waiting"], now["vllm:kv_cache_usage_perc"]) == (0, 0)


async def test_metrics_tell_of_load_tokens_and_first_tokens() -> None:
    limits = Limits(max_model_len=4096, max_num_seqs=1)
    async with worker(replace(SLOW, limits=limits)) as client:
        asked = [
            asyncio.create_task(client.post("/v1/completions", json={**LONG, "max_tokens": 3}))
            for _ in range(2)
        ]
        await until(client, lambda now: now["vllm:num_requests_waiting"] == 1)
        busy = await metrics(client)
        await asyncio.gather(*asked)
        idle = await metrics(client)

    assert (busy["vllm:num_requests_running"], idle["vllm:num_requests_waiting"]) == (1, 0)
    assert 0 < busy["vllm:kv_cache_usage_perc"] < 1
    assert idle["vllm:kv_cache_usage_perc"] == 0
    assert idle["vllm:prompt_tokens_total"] == 80
    assert idle["vllm:prompt_tokens_cached_total"] == 32
    assert idle["vllm:generation_tokens_total"] == 6
    assert idle["vllm:time_to_first_token_seconds_count"] == 2
    # The second waits for the first; how long, counts from when it came, which may be a little later.
    assert idle["vllm:time_to_first_token_seconds_sum"] > 1.0 + 3.5
    assert idle["vllm:num_preemptions_total"] == 0
    assert idle["simulator:late_seconds_max"] > 0


async def test_preemptions_are_counted_once() -> None:
    limits = Limits(max_model_len=96, kv_tokens=96)
    async with worker(replace(FAST, model=replace(FAST.model, max_model_len=96), limits=limits)) as client:
        body = {"prompt": [1] * 31, "ignore_eos": True, "max_tokens": 40}
        await asyncio.gather(*(client.post("/v1/completions", json={**body, "cache_salt": s}) for s in "ab"))
        first, second = await metrics(client), await metrics(client)

    assert first["vllm:num_preemptions_total"] >= 1
    assert first["vllm:num_preemptions_total"] == second["vllm:num_preemptions_total"]


async def test_probes_and_wrong_turns() -> None:
    async with worker() as client:
        health = await client.get("/health?a=b")
        models = await client.get("/v1/models")
        statuses = [
            (await client.request(method, path)).status_code
            for method, path in (
                ("POST", "/health"),
                ("GET", "/v1/completions"),
                ("GET", "/other"),
                ("POST", "/v1/chat/completions"),
            )
        ]

    assert (health.status_code, health.content) == (200, b"")
    (card,) = models.json()["data"]
    assert (card["id"], card["max_model_len"], card["owned_by"]) == ("qwen", 4096, "vllm")
    assert statuses == [405, 405, 404, 400]


async def exchanged(client: httpx.AsyncClient, data: bytes) -> bytes:
    """All that comes until the worker ends the connection."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(data)
    async with asyncio.timeout(GUARD_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_connection_ends_where_the_caller_says_so() -> None:
    async with worker() as client:
        answer = await exchanged(client, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_what_is_not_http_is_told_so() -> None:
    async with worker() as client:
        answer = await exchanged(client, b"nonsense\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_who_does_not_await_an_answer_loses_the_connection() -> None:
    body = json.dumps(LONG).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with worker(SLOW) as client:
        answer = await exchanged(client, request + request)
        await until(client, lambda now: now["vllm:num_requests_running"] == 0)

    assert answer == b""


async def test_at_the_end_open_streams_are_cut_off_and_the_port_is_free() -> None:
    body = json.dumps({**LONG, "stream": True}).encode()
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    async with serving(SLOW, listener):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(GUARD_S):
        rest = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert b"[DONE]" not in rest
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)

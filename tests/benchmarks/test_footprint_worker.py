"""Does the steady worker answer like vLLM, and at its pace?"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from benchmarks.footprint.worker import DEFAULT_TOKENS, PROMPT_TOKENS, TOKEN, SteadyWorker, Words


@asynccontextmanager
async def steady_worker(interval_s: float = 0.0) -> AsyncIterator[str]:
    """Its URL."""
    words = Words("smollm2")
    made: list[SteadyWorker] = []

    def connection() -> SteadyWorker:
        made.append(SteadyWorker(words, interval_s))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def sdk() -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        steady_worker() as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "smollm2", "messages": [{"role": "user", "content": "hello"}], **more}


async def test_a_stream_has_the_tokens_asked_for_then_usage_and_its_end() -> None:
    async with sdk() as client:
        options = {"include_usage": True}
        stream = await client.chat.completions.create(
            **asked(max_tokens=3, stream=True, stream_options=options)
        )
        chunks = [chunk async for chunk in stream]

    *told, last = chunks
    texts = [chunk.choices[0].delta.content for chunk in told]
    assert texts == ["", TOKEN, TOKEN, TOKEN]
    assert [chunk.choices[0].finish_reason for chunk in told] == [None, None, None, "length"]
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (PROMPT_TOKENS, 3)


async def test_a_plain_answer_has_as_many_tokens_as_a_stream() -> None:
    async with sdk() as client:
        three = await client.chat.completions.create(**asked(max_tokens=3))
        default = await client.chat.completions.create(**asked())

    assert three.choices[0].message.content == TOKEN * 3
    assert three.usage.completion_tokens == 3
    assert default.usage.completion_tokens == DEFAULT_TOKENS


@pytest.mark.parametrize(
    ("first", "last", "usage"), [("true", "false", 0), ("false", "true", 1), ("true", "true", 1)]
)
async def test_of_two_members_with_one_name_the_last_counts(first: str, last: str, usage: int) -> None:
    options = '"stream_options":{"include_usage":%s}'
    body = f'{{"stream":true,"max_tokens":2,{options},{options}}}'
    async with steady_worker() as url, httpx.AsyncClient(trust_env=False, verify=False) as client:
        answer = await client.post(f"{url}/v1/chat/completions", content=body % (first, last))

    assert answer.text.count('"usage":') == usage
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_probes_are_answered_on_the_connection_that_goes_on() -> None:
    async with (
        steady_worker() as url,
        httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as client,
    ):
        health = await client.get("/health")
        models = await client.get("/v1/models")
        other = await client.get("/metrics")

    assert (health.status_code, health.content) == (200, b"")
    assert [card["id"] for card in models.json()["data"]] == ["smollm2"]
    assert other.status_code == 404


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


class Loop:
    """Stands still; what is to be called later is kept with the time for it."""

    def __init__(self) -> None:
        self.due: list[float] = []
        self.calls: list[Any] = []

    def time(self) -> float:
        return 100.0

    def call_at(self, when: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        self.due.append(when)
        self.calls.append(lambda: callback(*arguments))
        return asyncio.get_running_loop().call_later(3600, callback)


def streaming(monkeypatch: pytest.MonkeyPatch, tokens: int) -> tuple[SteadyWorker, Transport, Loop]:
    """A worker, 0.5 s a token, that has just been asked for a stream."""
    worker, transport, loop = SteadyWorker(Words("smollm2"), 0.5), Transport(), Loop()
    monkeypatch.setattr(worker, "_loop", loop)
    worker.connection_made(transport)
    body = json.dumps({"stream": True, "max_tokens": tokens}).encode()
    worker.data_received(
        b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    return worker, transport, loop


async def test_tokens_are_due_at_a_fixed_pace_however_late_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, transport, loop = streaming(monkeypatch, tokens=3)

    counts = [transport.written.count(TOKEN.encode())]
    for turn in range(2):
        loop.calls[turn]()
        counts.append(transport.written.count(TOKEN.encode()))

    assert counts == [1, 2, 3]
    assert loop.due == [100.5, 101.0]  # though the clock stands still
    assert transport.written.endswith(b"[DONE]\n\n\r\n0\r\n\r\n")
    worker.connection_lost(None)


async def test_a_caller_that_leaves_is_told_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _, _ = streaming(monkeypatch, tokens=3)
    timer = worker._timer
    assert timer is not None

    worker.connection_lost(None)

    assert timer.cancelled()


async def test_as_a_program_it_tells_where_it_listens_and_ends_with_sigterm() -> None:
    arguments = ["-m", "benchmarks.footprint.worker", "--model", "smollm2", "--interval-s", "0"]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip().removeprefix("listening on ")
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        health = await client.get(f"{url}/health")
    process.terminate()
    await process.communicate()

    assert health.status_code == 200
    assert process.returncode == 0

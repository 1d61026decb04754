"""Do the workers answer like vLLM, at the pace that was set, and count what they see?"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import openai
import pytest

from benchmarks.footprint.worker import DEFAULT_TOKENS, PROMPT_TOKENS, TOKEN
from benchmarks.overhead.worker import TOKENS_PER_WRITE, Connection, Counts, Engine

PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Serving:
    url: str
    engine: Engine


@asynccontextmanager
async def serving(interval_s: float = 0.0) -> AsyncIterator[Serving]:
    engine = Engine("measured")
    engine.interval_s = interval_s
    server = await asyncio.get_running_loop().create_server(lambda: Connection(engine), "127.0.0.1", 0)
    try:
        yield Serving(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", engine)
    finally:
        server.close()
        await server.wait_closed()


def http() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, verify=False)


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "measured", "messages": [{"role": "user", "content": "hello"}], **more}


@pytest.mark.parametrize("interval_s", [0.0, 0.001])
@pytest.mark.parametrize("tokens", [1, 2, TOKENS_PER_WRITE, TOKENS_PER_WRITE + 1, 3 * TOKENS_PER_WRITE])
async def test_a_stream_has_the_tokens_asked_for_at_any_pace(interval_s: float, tokens: int) -> None:
    async with (
        serving(interval_s) as worker,
        openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(**asked(max_tokens=tokens, stream=True))
        chunks = [chunk async for chunk in stream]

    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", *[TOKEN] * tokens]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * tokens + ["length"]
    assert worker.engine.counts == Counts(requests=1, whole_streams=1, chunks=tokens)


async def test_usage_is_told_only_where_it_was_asked_for() -> None:
    async with (
        serving() as worker,
        openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(
            **asked(max_tokens=3, stream=True, stream_options={"include_usage": True})
        )
        *_, last = [chunk async for chunk in stream]

    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (PROMPT_TOKENS, 3)


async def test_each_event_is_an_http_chunk_of_its_own() -> None:
    async with serving() as worker:
        host, port = worker.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(asked(max_tokens=9, stream=True)).encode()
        writer.write(b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (PATH.encode(), len(body), body))
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    assert answer.count(b"\r\ndata: ") == answer.count(b"data: ") == 1 + 9 + 1


async def test_an_answer_in_one_piece_has_its_tokens_too() -> None:
    async with serving() as worker, http() as client:
        answers = [
            (await client.post(worker.url + PATH, json=asked(**more))).json()
            for more in ({"max_tokens": 3}, {"max_completion_tokens": 2}, {}, {"max_tokens": 3})
        ]

    said = [answer["choices"][0]["message"]["content"] for answer in answers]
    assert said == [TOKEN * 3, TOKEN * 2, TOKEN * DEFAULT_TOKENS, TOKEN * 3]
    assert worker.engine.counts == Counts(requests=4, plain=4)


async def test_of_two_members_with_one_name_the_last_counts() -> None:
    body = b'{"stream":true,"max_tokens":9,"max_tokens":2,"stream":false}'
    async with serving() as worker, http() as client:
        answer = await client.post(worker.url + PATH, content=body)

    assert answer.json()["usage"]["completion_tokens"] == 2


async def test_the_pace_is_set_while_it_runs() -> None:
    async with serving() as worker, http() as client:
        answer = await client.post(f"{worker.url}/pace", json={"interval_s": 0.25})
        assert (answer.status_code, worker.engine.interval_s) == (200, 0.25)


async def test_counts_are_told() -> None:
    async with serving() as worker, http() as client:
        await client.post(worker.url + PATH, json=asked(max_tokens=7, stream=True))
        told = (await client.get(f"{worker.url}/stats?fresh")).json()

    assert told == asdict(Counts(requests=1, whole_streams=1, chunks=7))


async def test_a_stream_whose_caller_goes_is_broken_and_sends_no_more() -> None:
    async with serving(interval_s=0.001) as worker, http() as client:
        async with client.stream("POST", worker.url + PATH, json=asked(max_tokens=10**9, stream=True)) as s:
            await anext(s.aiter_bytes())
        async with asyncio.timeout(30):
            while worker.engine.counts.open_streams:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    assert worker.engine.counts.broken_streams == 1
    assert worker.engine.counts.whole_streams == 0


async def test_a_caller_that_takes_nothing_stops_the_flow_until_it_does() -> None:
    tokens = 100_000  # more than the buffers of any socket hold
    question = asked(max_tokens=tokens, stream=True)
    async with (
        serving() as worker,
        http() as client,
        asyncio.timeout(60),
        client.stream("POST", worker.url + PATH, json=question) as answer,
    ):
        before = -1
        while before != worker.engine.counts.chunks:  # until it has stopped
            before = worker.engine.counts.chunks
            await asyncio.sleep(0.05)
        assert 0 < before < tokens
        said = 0
        async for line in answer.aiter_lines():
            said += TOKEN in line

    assert said == tokens
    assert worker.engine.counts == Counts(requests=1, whole_streams=1, chunks=tokens)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", b"", 200),
        ("GET", "/v1/models", b"", 200),
        ("GET", "/elsewhere", b"", 404),
        ("POST", PATH, b"{", 400),
        ("POST", "/pace", b"{}", 400),
    ],
)
async def test_all_else_is_answered_too(method: str, path: str, body: bytes, status: int) -> None:
    async with serving() as worker, http() as client:
        answer = await client.request(method, worker.url + path, content=body)

    assert answer.status_code == status
    assert worker.engine.counts == Counts()


async def test_who_does_not_speak_http_is_hung_up_on() -> None:
    async with serving() as worker:
        host, port = worker.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16\x03\x01 what\r\n\r\n")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

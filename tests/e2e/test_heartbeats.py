"""Do heartbeats keep a stream alive while nothing comes, with no harm to anyone who reads it?"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from gateway.exchange import HEARTBEAT
from tests.conftest import KEY, MODEL
from tests.e2e.callers import COMPLETIONS, COST, QUESTION, STREAMED, Caller
from tests.e2e.gates import TOKEN, Gate
from tests.e2e.observed import TENANT, Observed, limited, observed
from tests.fakes import (
    PROMPT_TOKENS,
    FakeWorker,
    Received,
    Reply,
    Script,
    compact,
    plain_answer,
    response_head,
    sse_event,
)

pytestmark = pytest.mark.usefixtures("either_lane")

BEATING: dict[str, Any] = {"relay": {"heartbeat_s": 0.04}}
FRAMED = b"%x\r\n%b\r\n" % (len(HEARTBEAT), HEARTBEAT)
EVENT = sse_event(TOKEN)
DONE = sse_event(b"[DONE]")
REFUSAL = b'{"error": {"message": "bad grammar",\n "type": "BadRequestError", "code": 400}}'


class Steps:
    """A worker's script that takes each step of a stream when it is let."""

    def __init__(self) -> None:
        self._lets: asyncio.Queue[None] = asyncio.Queue()

    def step(self) -> None:
        self._lets.put_nowait(None)

    async def __call__(self, request: Received, reply: Reply) -> None:
        await self._lets.get()
        await reply.stream_head()
        await self._lets.get()
        await reply.event(TOKEN)
        await self._lets.get()
        await reply.event(TOKEN)
        await self._lets.get()
        await reply.done()


def unframed(chunked: bytes) -> bytes:
    """A whole chunked body without its frames."""
    data = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        end = int(size, 16)
        data, chunked = data + rest[:end], rest[end + 2 :]
    return data


def strict_events(stream: bytes) -> Iterator[bytes]:
    """What a decoder finds that takes every empty line for the end of an event with data.

    As that of openai-go. It fails on a comment that an empty line follows, and on fields that are no data.
    """
    data: list[bytes] = []
    for line in stream.splitlines():
        name, _, value = line.partition(b":")
        if not line:
            json.loads(b"\n".join(data).replace(b"[DONE]", b"true"))  # raises where there is none
            yield b"\n".join(data)
            data = []
        elif name:
            assert name == b"data"
            data.append(value.removeprefix(b" "))
    assert not data


async def beaten(caller: Caller, times: int = 2) -> bytes:
    """Wait until so many heartbeats have come; all until then."""
    return b"".join([await caller.until(HEARTBEAT) for _ in range(times)])


@pytest.mark.case("S6")
async def test_heartbeats_come_between_events_and_change_nothing_else() -> None:
    steps = Steps()
    async with FakeWorker(steps) as worker, observed(worker, **BEATING) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            status, headers = await caller.head()
            content = await beaten(caller)
            for _ in range(3):
                steps.step()
                content += await beaten(caller)  # before the head, before an event, after events
            steps.step()
            content += await caller.rest()
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
        assert {"x-request-id", "x-ratelimit-limit-requests", "x-gateway-worker"} < headers.keys()
        stream = unframed(content)
        assert content.count(FRAMED) == content.count(HEARTBEAT) >= 8  # each in a frame of its own
        assert stream.replace(HEARTBEAT, b"") == 2 * EVENT + DONE
        assert list(strict_events(stream)) == [compact(TOKEN), compact(TOKEN), b"[DONE]"]
        [line] = await gateway.ended("ok", requests=1, tokens=PROMPT_TOKENS + 2)
        assert (line["status"], line["stream"]) == (200, True)
        assert await gateway.metric("gateway_ttft_seconds_count") == 1
        assert await gateway.metric("gateway_inter_token_seconds_count") == 2  # they are no tokens


def test_a_strict_decoder_fails_on_a_comment_that_an_empty_line_follows() -> None:
    with pytest.raises(json.JSONDecodeError):
        list(strict_events(EVENT + HEARTBEAT + b"\n" + DONE))


async def test_a_stream_whose_events_come_in_time_has_none() -> None:
    async with FakeWorker() as worker, observed(worker, relay={"heartbeat_s": 60}) as gateway:
        async with gateway.http() as client:
            answer = await client.post(COMPLETIONS, json=STREAMED)
        assert b"\n:" not in answer.content
        assert list(strict_events(answer.content))[-1] == b"[DONE]"
        await gateway.ended("ok", requests=1, tokens=COST)


async def test_who_waits_in_the_queue_hears_of_it_and_is_served_in_the_same_stream() -> None:
    gate = Gate()
    async with FakeWorker(gate) as worker, observed(worker, workers=limited(worker), **BEATING) as gateway:
        async with gateway.http() as client, Caller(gateway.url) as caller:
            first = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await worker.received(1)
            caller.ask(STREAMED, headers={"connection": "close"})
            status, headers = await caller.head()
            content = await beaten(caller)
            assert (status, "x-gateway-worker" in headers) == (200, False)
            assert int(headers["x-gateway-queue-ms"]) > 0
            assert len(worker.requests) == 1
            gate.open.set()
            stream = unframed(content + await caller.rest())
            assert (await first).status_code == 200
        assert list(strict_events(stream))[-1] == b"[DONE]"
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)


async def test_who_asked_for_no_stream_hears_none() -> None:
    gate = Gate()
    async with FakeWorker(gate) as worker, observed(worker, **BEATING) as gateway:
        async with gateway.http() as client, Caller(gateway.url) as streamed:
            plain = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await worker.received(1)
            streamed.ask(STREAMED)
            await beaten(streamed, 3)
            gate.open.set()
            answer = await plain
            await streamed.until(b"[DONE]")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["usage"]["total_tokens"] == COST
        await gateway.ended("ok", "ok", requests=2, tokens=2 * COST)


# In the SDK


async def read_by_the_async_client(gateway: Observed, on_chunk: Callable[[], None]) -> list[str]:
    texts = []
    async with gateway.client() as client:
        stream = await client.completions.create(model=MODEL, prompt="hi", stream=True)
        async for chunk in stream:
            texts.append(chunk.choices[0].text)
            on_chunk()
    return texts


async def read_by_the_blocking_client(gateway: Observed, on_chunk: Callable[[], None]) -> list[str]:
    loop = asyncio.get_running_loop()

    def read() -> list[str]:
        texts = []
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
            for chunk in client.completions.create(model=MODEL, prompt="hi", stream=True):
                texts.append(chunk.choices[0].text)
                loop.call_soon_threadsafe(on_chunk)
        return texts

    return await asyncio.to_thread(read)


@pytest.mark.case("S6")
@pytest.mark.parametrize("read", [read_by_the_async_client, read_by_the_blocking_client])
async def test_the_sdk_reads_through_them(
    read: Callable[[Observed, Callable[[], None]], Awaitable[list[str]]],
) -> None:
    """Another stream, which hears nothing else, tells that there were some meanwhile."""
    steps = Steps()
    async with (
        FakeWorker([steps, Gate()]) as worker,
        observed(worker, **BEATING) as gateway,
        Caller(gateway.url) as witness,
    ):
        chunks: asyncio.Queue[None] = asyncio.Queue()
        reading = asyncio.ensure_future(read(gateway, lambda: chunks.put_nowait(None)))
        await worker.received(1)
        witness.ask(STREAMED)
        await beaten(witness)
        steps.step()
        steps.step()
        await chunks.get()
        await beaten(witness, 3)
        steps.step()
        await chunks.get()
        await beaten(witness, 3)
        steps.step()
        assert await reading == ["a", "a"]


# What goes wrong later


async def refuse(request: Received, reply: Reply) -> None:
    head = {"content-type": "application/json", "content-length": str(len(REFUSAL))}
    await reply.send(response_head(400, head) + REFUSAL)


async def refuse_in_the_first_event(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(REFUSAL.replace(b"\n", b""))
    await reply.done()


async def be_busy(request: Received, reply: Reply) -> None:
    await reply.json({"error": {"message": "full"}}, status=503)


async def fail(request: Received, reply: Reply) -> None:
    await reply.json({"error": {"message": "EngineCore at 10.0.0.7"}}, status=500)


async def fail_in_the_first_event(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event({"error": {"message": "EngineCore at 10.0.0.7", "code": 500}})
    await reply.done()


async def answer_without_a_stream(request: Received, reply: Reply) -> None:
    await reply.json({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})


async def reset(request: Received, reply: Reply) -> None:
    reply.reset()


async def break_off(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    reply.close()


@pytest.mark.parametrize(
    ("script", "code", "outcome"),
    [
        (refuse, 400, "worker_refused"),
        (refuse_in_the_first_event, 400, "worker_refused"),
        (be_busy, "server_is_overloaded", "server_is_overloaded"),
        (fail, "worker_failed", "worker_failed"),
        (fail_in_the_first_event, "worker_failed", "worker_failed"),
        (answer_without_a_stream, "worker_failed", "worker_failed"),
        (reset, "worker_failed", "worker_failed"),
        (break_off, "worker_failed", "worker_failed"),
    ],
)
async def test_what_a_worker_says_then_is_one_event_with_its_own_code(
    script: Script, code: object, outcome: str
) -> None:
    told = asyncio.Event()

    async def late(request: Received, reply: Reply) -> None:
        await told.wait()
        await script(request, reply)

    async with FakeWorker(late) as worker, observed(worker, **BEATING) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            assert (await caller.head())[0] == 200
            content = await beaten(caller)
            told.set()
            stream = unframed(content + await caller.rest())
        [event] = strict_events(stream)
        assert json.loads(event)["error"]["code"] == code
        assert b"10.0.0.7" not in event
        [line] = await gateway.ended(outcome, requests=0, tokens=0)
        assert line["status"] == 200
        assert await gateway.metric("gateway_ttft_seconds_count") == 0


@pytest.mark.parametrize("late", ["first_byte", "gap", "request"])
async def test_they_are_no_reason_to_wait_longer(late: str) -> None:
    """Nor are they tokens: without any, nothing is charged where the worker did not answer."""

    async def script(request: Received, reply: Reply) -> None:
        if late != "first_byte":
            await reply.stream_head()
            await reply.event(TOKEN)
        await reply.peer_closed()

    short = {f"{late}_timeout_s": 0.3}
    limits = {"server": short} if late == "request" else {"upstream": short}
    async with FakeWorker(script) as worker, observed(worker, **limits, **BEATING) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            assert (await caller.head())[0] == 200
            stream = unframed(await caller.rest())
        assert HEARTBEAT in stream
        *_, event = strict_events(stream)
        assert json.loads(event)["error"]["code"] == "worker_timeout"
        charge = (0, 0) if late == "first_byte" else (1, PROMPT_TOKENS + 1)
        await gateway.ended(f"{late}_timeout", requests=charge[0], tokens=charge[1])
        await worker.closed_by_peer(1)


async def test_who_waited_too_long_in_the_queue_is_told_in_the_stream() -> None:
    gate = Gate()
    async with (
        FakeWorker(gate) as worker,
        observed(worker, workers=limited(worker), admission={"max_wait_s": 0.3}, **BEATING) as gateway,
    ):
        async with gateway.http() as client, Caller(gateway.url) as caller:
            first = asyncio.create_task(client.post(COMPLETIONS, json=QUESTION))
            await worker.received(1)
            caller.ask(STREAMED, headers={"connection": "close"})
            assert (await caller.head())[0] == 200
            [event] = strict_events(unframed(await caller.rest()))
            gate.open.set()
            assert (await first).status_code == 200
        assert json.loads(event)["error"]["code"] == "server_is_overloaded"
        await gateway.ended("ok", "server_is_overloaded", requests=1, tokens=COST)


async def test_who_is_sent_away_is_told_in_the_stream() -> None:
    async with FakeWorker(Gate()) as worker, observed(worker, server={"drain_s": 0}, **BEATING) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            assert (await caller.head())[0] == 200
            content = await beaten(caller)
            await gateway.gateway.drain(asyncio.Event())
            [event] = strict_events(unframed(content + await caller.rest()))
        assert json.loads(event)["error"]["code"] == "draining"
        assert [line["outcome"] for line in await gateway.idle_lines()] == ["draining"]
        await worker.closed_by_peer(1)


async def test_another_worker_serves_the_stream_that_they_have_begun() -> None:
    told = asyncio.Event()
    asked = []

    async def decline_once(request: Received, reply: Reply) -> None:
        asked.append(request)
        if len(asked) > 1:
            await plain_answer(request, reply)
            return
        await told.wait()
        await reply.json({"error": {"message": "cannot schedule new futures after shutdown"}}, status=500)

    workers = FakeWorker(decline_once), FakeWorker(decline_once)
    async with workers[0], workers[1], observed(*workers, **BEATING) as gateway:
        async with Caller(gateway.url) as caller:
            caller.ask(STREAMED, headers={"connection": "close"})
            assert (await caller.head())[0] == 200
            content = await beaten(caller)
            told.set()
            stream = unframed(content + await caller.rest())
        assert list(strict_events(stream))[-1] == b"[DONE]"
        [line] = await gateway.ended("ok", requests=1, tokens=COST)
        assert (len(line["tried"]), len(asked)) == (1, 2)


async def test_a_refusal_that_comes_before_them_keeps_its_status() -> None:
    tenant = {**TENANT, "requests_per_minute": 1, "max_concurrency": 1}
    async with FakeWorker() as worker, observed(worker, tenants=[tenant], **BEATING) as gateway:
        async with gateway.http("sk-unknown") as client:
            assert (await client.post(COMPLETIONS, json=STREAMED)).status_code == 401
        async with gateway.http() as client:
            answers = [await client.post(COMPLETIONS, json=body) for body in ({}, STREAMED, STREAMED)]
        assert [answer.status_code for answer in answers] == [400, 200, 429]


# Where nobody reads, and where nobody may be silent


async def test_a_caller_who_reads_nothing_is_cut_off_all_the_same() -> None:
    """Whether the worker has more for it or not."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(200):
            await reply.event({"choices": [{"index": 0, "text": "x" * 100_000}]})
        await reply.peer_closed()

    async with (
        FakeWorker([script, Gate()]) as worker,
        observed(worker, server={"client_stall_s": 0.5}, **BEATING) as gateway,
    ):
        async with Caller(gateway.url, receive_bytes=4096) as deaf, Caller(gateway.url) as other:
            deaf.ask(STREAMED)
            await deaf.head()
            await worker.received(1)
            other.ask(STREAMED)
            await beaten(other)
            await worker.closed_by_peer(1)
            await beaten(other)
        lines = await gateway.idle_lines()
        assert sorted(line["outcome"] for line in lines) == ["client_gone", "client_stalled"]


class Balancer:
    """A relay to the gateway that ends connections over which nothing has come back since it last looked."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._has_passed = asyncio.Event()

    async def __aenter__(self) -> "Balancer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, on]
        self._tasks += [
            asyncio.create_task(self._pass(reader, on, asyncio.Event())),
            asyncio.create_task(self._pass(back, writer, self._has_passed)),
        ]

    async def _pass(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, mark: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            to.write(data)
            mark.set()
        to.close()

    async def comes_back(self) -> None:
        """Wait until something comes back from now on."""
        self._has_passed.clear()
        await self._has_passed.wait()

    def look(self) -> None:
        if not self._has_passed.is_set():
            self.cut()
        self._has_passed.clear()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def ask_through(balancer: Balancer, body: object) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        headers = {"authorization": f"Bearer {KEY}"}
        return await client.post(f"http://127.0.0.1:{balancer.port}{COMPLETIONS}", json=body, headers=headers)


@pytest.mark.case("S6")
async def test_a_balancer_that_ends_silent_connections_leaves_a_stream_that_waits() -> None:
    gate = Gate()
    async with FakeWorker(gate) as worker, observed(worker, **BEATING) as gateway:
        async with Balancer(urlsplit(gateway.url).port or 0) as balancer:
            asking = asyncio.create_task(ask_through(balancer, STREAMED))
            await worker.received(1)
            for _ in range(3):
                await balancer.comes_back()
                balancer.look()
            gate.open.set()
            answer = await asking
        assert list(strict_events(answer.content))[-1] == b"[DONE]"
        await gateway.ended("ok", requests=1, tokens=COST)


@pytest.mark.case("S6")
async def test_without_them_it_ends_that_stream_and_the_work_for_it() -> None:
    async with FakeWorker(Gate()) as worker, observed(worker) as gateway:
        async with Balancer(urlsplit(gateway.url).port or 0) as balancer:
            asking = asyncio.create_task(ask_through(balancer, STREAMED))
            await worker.received(1)
            balancer.look()
            with pytest.raises(httpx.TransportError):
                await asking
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS)

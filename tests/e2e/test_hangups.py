"""Does a caller who leaves, at any moment, free everything at once and stop the worker?"""

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from tests.conftest import MODEL
from tests.e2e.callers import COMPLETIONS, QUESTION, STREAMED, Caller, head_of, sockets
from tests.e2e.observed import STEADY_PROBES, limited, observed
from tests.fakes import PROMPT_TOKENS, FakeWorker, Received, Reply, response_head

pytestmark = pytest.mark.usefixtures("either_lane")

LEAVING = pytest.mark.parametrize("leave", [Caller.leave, Caller.reset], ids=["by FIN", "by RST"])
EITHER = pytest.mark.parametrize("body", [QUESTION, STREAMED], ids=["plain", "streamed"])
Leave = Callable[[Caller], None]
CONNECTING = "02"
TOKEN = {"choices": [{"index": 0, "text": " glad", "finish_reason": None}]}


async def silent(request: Received, reply: Reply) -> None:
    await reply.peer_closed()


async def head_only(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.peer_closed()


async def three_tokens(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for _ in range(3):
        await reply.event(TOKEN)
    await reply.peer_closed()


async def half_a_plain_answer(request: Received, reply: Reply) -> None:
    await reply.send(response_head(200, {"content-type": "application/json", "content-length": "5000000"}))
    await reply.send(b" " * 1_000_000)
    await reply.peer_closed()


@pytest.mark.case("S2")
@LEAVING
@EITHER
async def test_leaving_before_the_head_stops_the_worker(leave: Leave, body: object) -> None:
    async with FakeWorker(silent) as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(body)
        await worker.received(1)
        leave(caller)
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS)
        assert len(worker.requests) == 1


@pytest.mark.case("S2")
@LEAVING
async def test_leaving_between_the_head_and_the_first_event_stops_the_worker(leave: Leave) -> None:
    async with FakeWorker(head_only) as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(STREAMED)
        await worker.received(1)
        leave(caller)
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS)
        assert len(worker.requests) == 1


@pytest.mark.case("S1")
@LEAVING
async def test_leaving_in_mid_stream_stops_the_worker_and_costs_what_was_seen(leave: Leave) -> None:
    async with (
        FakeWorker(three_tokens) as worker,
        FakeWorker() as other,
        observed(worker, other, routing={"policy": "round_robin"}) as gateway,
        Caller(gateway.url) as caller,
    ):
        caller.ask(STREAMED)
        for _ in range(3):
            await caller.until(b"\n\n")
        leave(caller)
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS + 3)
        assert (len(worker.requests), len(other.requests)) == (1, 0)


@pytest.mark.case("S1")
@LEAVING
async def test_leaving_amid_a_plain_answer_stops_the_worker(leave: Leave) -> None:
    async with (
        FakeWorker(half_a_plain_answer) as worker,
        observed(worker) as gateway,
        Caller(gateway.url) as caller,
    ):
        caller.ask(QUESTION)
        await caller.head()
        leave(caller)
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=PROMPT_TOKENS)
        assert len(worker.requests) == 1


@pytest.mark.case("Q1")
@LEAVING
@EITHER
async def test_leaving_the_queue_frees_its_place_and_reaches_no_worker(leave: Leave, body: object) -> None:
    async with FakeWorker(silent) as worker, observed(worker, workers=limited(worker)) as gateway:
        async with Caller(gateway.url) as first, Caller(gateway.url) as caller:
            first.ask(QUESTION)
            await worker.received(1)
            caller.ask(body)
            await gateway.reaches(1, "gateway_queue_depth")
            leave(caller)
            await gateway.reaches(0, "gateway_queue_depth")
            first.leave()
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", "client_gone", requests=1, tokens=PROMPT_TOKENS)
        assert len(worker.requests) == 1


@asynccontextmanager
async def deaf(worker: FakeWorker) -> AsyncIterator[None]:
    """In a worker's place stands a listener to which no connection comes about."""
    await worker.stop()
    with socket.create_server(("127.0.0.1", worker.port), backlog=0) as listener, socket.socket() as plug:
        plug.connect(listener.getsockname())
        yield


@pytest.mark.case("S2")
@LEAVING
@pytest.mark.parametrize("count", [1, 20], ids=["alone", "twenty at once"])
async def test_leaving_while_the_worker_is_being_connected_leaves_nothing(leave: Leave, count: int) -> None:
    async with (
        FakeWorker() as worker,
        observed(worker, fleet=STEADY_PROBES, workers=limited(worker, max_concurrency=count)) as gateway,
        deaf(worker),
        contextlib.AsyncExitStack() as stack,
    ):
        callers = [await stack.enter_async_context(Caller(gateway.url)) for _ in range(count)]
        for caller in callers:
            caller.ask(QUESTION)
        await gateway.reaches(count, "gateway_in_flight")
        assert sockets(to=worker.port, state=CONNECTING) == count
        for caller in callers:
            leave(caller)
        await gateway.ended(*["client_gone"] * count, requests=0, tokens=0)
        assert sockets(to=worker.port, state=CONNECTING) == 0


@pytest.mark.case("S2")
@LEAVING
async def test_leaving_during_the_tls_handshake_closes_the_worker_s_socket(
    leave: Leave, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with (
        FakeWorker(tls=tls) as worker,
        observed(worker, fleet=STEADY_PROBES, upstream={"ca_file": str(tmp_path / "ca.pem")}) as gateway,
        Caller(gateway.url) as caller,
    ):
        await worker.stop()
        greeted, closed = asyncio.Event(), asyncio.Event()

        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            greeted.set()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            closed.set()
            writer.close()

        async with await asyncio.start_server(mute, "127.0.0.1", worker.port):
            caller.ask(QUESTION)
            await greeted.wait()
            leave(caller)
            await closed.wait()
        await gateway.ended("client_gone", requests=0, tokens=0)


@LEAVING
async def test_leaving_amid_the_upload_reaches_no_worker(leave: Leave) -> None:
    async with FakeWorker() as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.say(head_of(COMPLETIONS, {"content-length": "1000"}) + b'{"model":')
        leave(caller)
        await gateway.ended("client_gone", requests=0, tokens=0)
        assert worker.requests == []


@pytest.mark.case("S2")
@LEAVING
async def test_twenty_who_leave_during_prefill_at_once_all_stop_the_worker(leave: Leave) -> None:
    async with (
        FakeWorker(silent) as worker,
        observed(worker, workers=limited(worker, max_concurrency=20)) as gateway,
    ):
        async with contextlib.AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(Caller(gateway.url)) for _ in range(20)]
            for caller in callers:
                caller.ask(STREAMED)
            await worker.received(20)
            for caller in callers:
                leave(caller)
            await worker.closed_by_peer(20)
        await gateway.ended(*["client_gone"] * 20, requests=20, tokens=20 * PROMPT_TOKENS)
        assert len(worker.requests) == 20


@LEAVING
async def test_leaving_after_done_is_a_success(leave: Leave) -> None:
    left = asyncio.Event()

    async def lingering(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(TOKEN)
        await reply.event(b"[DONE]")
        await left.wait()
        await reply.send(b"0\r\n\r\n")

    async with FakeWorker(lingering) as worker, observed(worker) as gateway, Caller(gateway.url) as caller:
        caller.ask(STREAMED)
        await caller.until(b"data: [DONE]\n\n")
        leave(caller)
        left.set()
        await gateway.ended("ok", requests=1, tokens=PROMPT_TOKENS + 1)
        await worker.keeps(1)  # beside those of probes
        assert not worker.connections[worker.requests[0].connection - 1].lost  # it is for the next request


@pytest.mark.case("S1")
async def test_a_stream_closed_by_the_sdk_stops_the_worker() -> None:
    async with FakeWorker(three_tokens) as worker, observed(worker) as gateway, gateway.client() as client:
        stream = await client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=9, stream=True)
        async for _ in stream:
            break
        await stream.close()
        await worker.closed_by_peer(1)
        [line] = await gateway.ended("client_gone", requests=1, tokens=5)
        assert line["status"] == 200


@pytest.mark.case("S2")
async def test_a_call_cancelled_in_the_sdk_stops_the_worker() -> None:
    async with FakeWorker(silent) as worker, observed(worker) as gateway, gateway.client() as client:
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=9))
        await worker.received(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await worker.closed_by_peer(1)
        await gateway.ended("client_gone", requests=1, tokens=2)


@pytest.mark.case("C1")
async def test_cancelled_calls_never_cost_capacity() -> None:
    chance = random.Random(1)

    async def impatient(url: str) -> None:
        for _ in range(20):
            async with Caller(url) as caller:
                caller.ask(QUESTION)
                await asyncio.sleep(chance.uniform(0, 0.006))  # the moment of leaving is what varies
                caller.leave()

    async with (
        FakeWorker() as worker,
        observed(worker, workers=limited(worker, max_concurrency=4)) as gateway,
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(impatient(gateway.url))
        await gateway.idle()
        async with gateway.http() as client:
            answers = await asyncio.gather(*(client.post(COMPLETIONS, json=QUESTION) for _ in range(14)))
        assert [answer.status_code for answer in answers] == [200] * 14
        assert await gateway.metric("gateway_in_flight") == 0
        assert len(gateway.log_lines()) == await gateway.metric("gateway_requests_total")

"""Is a connection used again when it is sound, and a request sent again only when nothing was done?"""

import asyncio
import random

import pytest

from gateway.errors import WorkerBroke, WorkerUnreachable
from tests.fakes import FakeWorker, Received, Reply, plain_answer
from tests.gateway.upstream.asking import BODY, JSON, PATH, MakeClient, ask, until, whole


async def test_connections_are_reused_the_latest_first(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        first, second = [await client.post(PATH, JSON, BODY) for _ in range(2)]
        await whole(first)
        await whole(second)
        assert client.idle == 2
        await ask(client)
        await ask(client)
        assert [request.connection for request in worker.requests] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
    ],
    ids=["close", "HTTP/1.0", "bytes after the end"],
)
async def test_a_connection_that_may_not_be_reused_is_closed(client_for: MakeClient, text: bytes) -> None:
    async with FakeWorker(lambda _, reply: reply.send(text)) as worker:
        client = client_for(worker.url)
        assert await ask(client) == b"{}"
        await worker.closed_by_peer(1)
        assert client.idle == 0


async def test_a_worker_that_closes_idle_connections_is_noticed(client_for: MakeClient) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await plain_answer(request, reply)
        reply.close()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        for _ in range(3):
            await ask(client)
            await until(lambda: client.idle == 0)
        assert [request.connection for request in worker.requests] == [1, 2, 3]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_stale_connection_costs_one_more_attempt_and_no_more(
    client_for: MakeClient, how: str
) -> None:
    async def fail(_: Received, reply: Reply) -> None:
        reply.close() if how == "close" else reply.reset()

    async with FakeWorker([plain_answer, fail, plain_answer, fail, fail]) as worker:
        client = client_for(worker.url)
        await ask(client)
        await ask(client)  # reused, closed without a byte, then a fresh connection
        assert [request.connection for request in worker.requests] == [1, 1, 2]
        with pytest.raises(WorkerBroke):
            await ask(client)  # reused, then fresh: both closed
        assert [request.connection for request in worker.requests] == [1, 1, 2, 2, 3]


async def test_a_request_that_cannot_be_written_to_a_reused_connection_is_run_once(
    client_for: MakeClient,
) -> None:
    body = [memoryview(bytes(20_000_000))]

    async def reset_at_head(request: Received, reply: Reply) -> None:
        if request.headers["content-length"] == "15":
            await reply.json({})
        elif request.connection == 1:
            reply.stop_reading()
            reply.reset()
        else:
            await reply.json({"second": True})

    async with FakeWorker(reset_at_head, at_head=True) as worker:
        client = client_for(worker.url)
        await ask(client)
        answer = await client.post(PATH, JSON, body)
        assert await answer.read() == b'{"second":true}'
        answer.close()
        assert [request.connection for request in worker.requests] == [1, 1, 2]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_fresh_connection_that_ends_without_a_byte_is_not_tried_again(
    client_for: MakeClient, how: str
) -> None:
    async def fail(_: Received, reply: Reply) -> None:
        reply.close() if how == "close" else reply.reset()

    async with FakeWorker(fail) as worker:
        with pytest.raises(WorkerBroke) as caught:
            await ask(client_for(worker.url))
        assert f"127.0.0.1:{worker.port}" in caught.value.detail
        assert len(worker.requests) == 1


async def test_a_reused_connection_that_breaks_within_the_answer_is_not_tried_again(
    client_for: MakeClient,
) -> None:
    async def break_off(_: Received, reply: Reply) -> None:
        await reply.send(b"HTTP/1.1 200")
        reply.close()

    async with FakeWorker([plain_answer, break_off]) as worker:
        client = client_for(worker.url)
        await ask(client)
        with pytest.raises(WorkerBroke):
            await ask(client)
        assert len(worker.requests) == 2


async def test_the_retry_of_a_stale_connection_may_find_the_worker_gone(client_for: MakeClient) -> None:
    async def stop_serving(_: Received, reply: Reply) -> None:
        worker._server.close()
        reply.close()

    async with FakeWorker([plain_answer, stop_serving]) as worker:
        client = client_for(worker.url)
        await ask(client)
        with pytest.raises(WorkerUnreachable):
            await ask(client)
        assert client.busy == 0


async def test_requests_that_race_with_the_idle_limit_of_the_worker_run_once_each(
    client_for: MakeClient,
) -> None:
    dice = random.Random(1)

    async def answer_and_close_if_idle(_: Received, reply: Reply) -> None:
        mine = len(worker.requests)
        await reply.json({})
        await turns_of_the_loop(dice.randrange(8))
        if len(worker.requests) == mine:
            reply.close()

    async with FakeWorker(answer_and_close_if_idle) as worker:
        client = client_for(worker.url)
        for _ in range(500):
            assert await ask(client) == b"{}"
            await turns_of_the_loop(dice.randrange(8))
        assert len(worker.requests) == 500


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)

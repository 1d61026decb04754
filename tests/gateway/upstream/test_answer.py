"""Does an answer come as the worker sends it, and end as it should, on good days and bad?"""

import asyncio
import gzip

import pytest

from gateway.errors import WorkerBroke, WorkerTimeout
from gateway.upstream import Timeouts
from tests.fakes import FakeWorker, Received, Reply, framed, response_head
from tests.gateway.upstream.asking import BODY, JSON, PATH, MakeClient, ask, whole


async def test_an_answer_is_complete_once_its_body_was_read(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        assert (answer.status, answer.complete, client.busy, client.idle) == (200, False, 1, 0)
        assert answer.headers == [(b"content-type", b"application/json")]
        body = await answer.read()
        assert (answer.length, answer.complete) == (len(body), True)
        assert (await answer.read(), answer.take()) == (b"", b"")
        answer.close()
        answer.close()
        assert (client.busy, client.idle, answer.complete) == (0, 1, True)
        assert (await answer.read(), answer.take()) == (b"", b"")


async def test_a_stream_comes_event_by_event(client_for: MakeClient) -> None:
    go_on = asyncio.Event()

    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        for name in (b"a", b"b"):
            await reply.event(name)
            await go_on.wait()
            go_on.clear()
        await reply.done()

    async with FakeWorker(script) as worker, await client_for(worker.url).post(PATH, JSON, BODY) as answer:
        assert (answer.length, await answer.read()) == (None, b"data: a\n\n")
        assert answer.take() is None
        go_on.set()
        assert await answer.read() == b"data: b\n\n"
        go_on.set()
        assert await answer.read() == b"data: [DONE]\n\n"
        assert answer.complete
        assert await answer.read() == b""


async def test_an_error_of_the_worker_is_an_answer_like_any_other(client_for: MakeClient) -> None:
    async def script(_: Received, reply: Reply) -> None:
        await reply.json(
            {"error": {}}, status=503, headers={"Retry-After": "1", "X-Foo": "1", "Connection": "x-foo"}
        )

    async with FakeWorker(script) as worker:
        answer = await client_for(worker.url).post(PATH, JSON, BODY)
        assert answer.status == 503
        assert answer.headers == [(b"content-type", b"application/json"), (b"retry-after", b"1")]
        assert await whole(answer) == b'{"error":{}}'


async def test_an_encoded_body_passes_as_it_is(client_for: MakeClient) -> None:
    body = gzip.compress(b"{}")

    async def script(_: Received, reply: Reply) -> None:
        await reply.send(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + body)
        reply.close()

    async with FakeWorker(script) as worker:
        answer = await client_for(worker.url).post(PATH, JSON, BODY)
        assert (answer.headers, answer.length) == ([(b"content-encoding", b"gzip")], None)
        assert await whole(answer) == body


async def test_an_answer_left_early_is_cut_off(client_for: MakeClient) -> None:
    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"a")
        await reply.peer_closed()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        with await client.post(PATH, JSON, BODY) as answer:
            await answer.read()
        assert (answer.complete, client.busy, client.idle) == (False, 0, 0)
        await worker.closed_by_peer(1)
        with pytest.raises(WorkerBroke):
            answer.take()


async def test_closing_an_answer_wakes_the_one_who_reads_it(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        answer = await client_for(worker.url).post(PATH, JSON, BODY)
        reading = asyncio.ensure_future(answer.read())
        await asyncio.sleep(0)  # now it waits
        answer.close()
        with pytest.raises(WorkerBroke):
            await reading


async def test_a_silent_stream_is_a_timeout(client_for: MakeClient) -> None:
    async def script(_: Received, reply: Reply) -> None:
        head = response_head(200, {"transfer-encoding": "chunked"})
        await reply.send(head + framed(b"a"))  # at once, so that no gap lies between
        await reply.peer_closed()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url, timeouts=Timeouts(connect_s=60, first_byte_s=60, gap_s=0.05))
        with await client.post(PATH, JSON, BODY) as answer:
            assert await answer.read() == b"a"
            with pytest.raises(WorkerTimeout) as caught:
                await answer.read()
        assert "no byte within 0.05 s" in caught.value.detail
        await worker.closed_by_peer(1)


@pytest.mark.parametrize("how", ["close", "reset", "garbage"])
async def test_a_stream_that_breaks_off_gives_what_came_and_then_the_failure(
    client_for: MakeClient, how: str
) -> None:
    seen = asyncio.Event()

    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"a")
        await seen.wait()
        if how == "garbage":
            await reply.send(b"no chunk\r\n")
        reply.reset() if how == "reset" else reply.close()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        with await client.post(PATH, JSON, BODY) as answer:
            assert await answer.read() == b"data: a\n\n"
            seen.set()
            with pytest.raises(WorkerBroke):
                await answer.read()
        assert (answer.complete, client.busy, client.idle) == (False, 0, 0)


async def test_a_worker_faster_than_its_reader_is_made_to_wait(client_for: MakeClient) -> None:
    flood = bytes(64 * 1024)
    sent: list[Reply] = []

    async def script(_: Received, reply: Reply) -> None:
        sent.append(reply)
        await reply.stream_head()
        for _chunk in range(1000):
            await reply.chunk(flood)
        await reply.done()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        [connection] = client._open
        await until_stuck(sent[0])
        assert connection.response.unread_bytes < 1_000_000
        assert sent[0].sent_bytes < 20_000_000  # the kernel's buffers, not ours
        await ask_another(client_for)
        assert len(await whole(answer)) == 1000 * len(flood) + len(b"data: [DONE]\n\n")
        assert client.idle == 1


async def until_stuck(reply: Reply) -> None:
    """Until the worker's send waits, and stays so while the loop goes round."""
    sent_bytes = -1
    while reply.sent_bytes != sent_bytes:
        sent_bytes = reply.sent_bytes
        for _ in range(100):
            await asyncio.sleep(0)


async def ask_another(client_for: MakeClient) -> None:
    async with FakeWorker() as other:
        await ask(client_for(other.url))

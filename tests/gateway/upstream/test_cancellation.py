"""Does a caller who leaves, at whatever moment, close the worker's socket and leak nothing?"""

import asyncio
import contextlib
import os
import random

import pytest

from tests.fakes import FakeWorker, Received, Reply
from tests.gateway.upstream.asking import BODY, JSON, PATH, MakeClient, ask, until


async def leave(asking: "asyncio.Future[bytes]") -> None:
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_leaving_while_it_connects_closes_the_socket(client_for: MakeClient, full_backlog: str) -> None:
    sockets = open_sockets()
    client = client_for(full_backlog)
    asking = asyncio.ensure_future(ask(client))
    await until(lambda: open_sockets() > sockets)
    await leave(asking)
    assert client.busy == 0
    await until(lambda: open_sockets() == sockets)


def open_sockets() -> int:
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.islink(link) and os.readlink(link).startswith("socket:") for link in links)


async def test_leaving_within_the_tls_handshake_closes_the_socket(client_for: MakeClient) -> None:
    ended = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        asking.cancel()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        client = client_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        asking = asyncio.ensure_future(ask(client))
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert client.busy == 0
        await ended.wait()


async def test_leaving_while_it_waits_for_the_answer_closes_the_socket(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.peer_closed()) as worker:
        client = client_for(worker.url)
        asking = asyncio.ensure_future(ask(client))
        await worker.received(1)
        await leave(asking)
        assert (client.busy, client.idle) == (0, 0)
        await worker.closed_by_peer(1)


async def test_leaving_while_a_body_is_sent_closes_the_socket(client_for: MakeClient) -> None:
    stopped = asyncio.Event()

    async def stop_reading(_: Received, reply: Reply) -> None:
        reply.stop_reading()
        stopped.set()

    async with FakeWorker(stop_reading, at_head=True) as worker:
        client = client_for(worker.url)
        asking = asyncio.ensure_future(client.post(PATH, JSON, [memoryview(bytes(50_000_000))]))
        await stopped.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert client.busy == 0
        worker.connections[0].transport.resume_reading()
        await worker.closed_by_peer(1)


async def test_leaving_while_it_reads_closes_the_socket(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        reading = asyncio.ensure_future(answer.read())
        await asyncio.sleep(0)  # now it waits
        await leave(reading)
        assert (client.busy, client.idle) == (0, 0)
        await worker.closed_by_peer(1)


async def test_leaving_just_as_the_answer_arrives_closes_the_socket(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.peer_closed()) as worker:
        client = client_for(worker.url)
        asking = asyncio.ensure_future(ask(client))
        await worker.received(1)
        [connection] = client._open
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
        await leave(asking)
        assert client.busy == 0
        await worker.closed_by_peer(1)


async def test_leaving_just_as_the_last_byte_arrives_keeps_the_connection_out_of_use(
    client_for: MakeClient,
) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        reading = asyncio.ensure_future(answer.read())
        await asyncio.sleep(0)  # now it waits
        [connection] = client._open
        connection.data_received(b"1\r\na\r\n0\r\n\r\n")
        await leave(reading)
        assert (client.busy, client.idle) == (0, 0)
        await worker.closed_by_peer(1)


async def test_leaving_after_any_number_of_turns_of_the_loop_leaks_nothing(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        sockets = open_sockets()
        for turns in range(40):
            client = client_for(worker.url)
            await leave_after(turns, asyncio.ensure_future(ask(client)))
            assert client.busy == 0
            await client.aclose()
            await until(lambda: open_sockets() == sockets)


async def leave_after(turns: int, asking: "asyncio.Future[bytes]") -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking


async def test_the_pool_works_after_2000_callers_have_left(client_for: MakeClient) -> None:
    dice = random.Random(1)
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        for _ in range(100):
            leaving = [leave_after(dice.randrange(15), asyncio.ensure_future(ask(client))) for _ in range(20)]
            await asyncio.gather(*leaving)
            assert client.busy == 0
        answers = await asyncio.gather(*(ask(client) for _ in range(30)))
        assert all(b"glad" in answer for answer in answers)
        assert client.busy == 0
        await until(lambda: worker.connections_open == client.idle)

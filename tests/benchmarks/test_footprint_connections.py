"""Do connections idle as those of callers do?"""

import pytest

from benchmarks.footprint.connections import idle_connections
from benchmarks.footprint.streams import RequestFailed, chat
from tests.fakes import FakeWorker, Received, Reply, plain_answer

BODY = chat("smollm2", 1, stream=False)


async def test_each_has_had_an_answer_and_is_open_until_the_block_ends() -> None:
    async with FakeWorker(plain_answer) as worker:
        async with idle_connections(4, worker.url, "sk-test", BODY) as idle:
            requests = len(worker.requests)
            lost = [connection.is_lost for connection in idle]
            connections = worker.connections_open
        await worker.closed_by_peer(4)

    assert (requests, connections) == (4, 4)
    assert lost == [False] * 4
    assert all(connection.is_lost for connection in idle)


async def test_one_that_is_closed_after_its_answer_is_lost() -> None:
    async def answer_and_close(request: Received, reply: Reply) -> None:
        await plain_answer(request, reply)
        reply.close()

    async with (
        FakeWorker(answer_and_close) as worker,
        idle_connections(1, worker.url, "sk-test", BODY) as [connection],
    ):
        await connection.lost
        assert connection.is_lost


async def test_requests_that_are_refused_or_not_answered_are_told() -> None:
    async def refuse(request: Received, reply: Reply) -> None:
        if request.connection == 1:
            reply.reset()
        else:
            await reply.json({}, status=503)

    async with FakeWorker(refuse) as worker:
        with pytest.raises(RequestFailed, match=r"answered with \[0, 503\]"):
            async with idle_connections(2, worker.url, "sk-test", BODY):
                pass


async def test_a_server_that_is_not_there_fails_them_at_once() -> None:
    async with FakeWorker() as worker:
        url = worker.url  # free again once the worker has ended

    with pytest.raises(ConnectionRefusedError):
        async with idle_connections(3, url, "sk-test", BODY):
            pass

"""Does an answer pour from its worker to the end, fail as a read does, and let go as it should?"""

import asyncio

import pytest

from gateway.errors import WorkerBroke, WorkerError, WorkerTimeout
from gateway.upstream import Timeouts
from tests.fakes import FakeWorker, Received, Reply, framed, response_head, sse_event
from tests.gateway.upstream.asking import BODY, JSON, PATH, MakeClient, ask, until
from tests.gateway.upstream.feeding import END, Basin, answering, chunk, leased
from tests.gateway.upstream.test_answer import until_stuck


async def test_pouring_ends_with_the_answer(client_for: MakeClient) -> None:
    go_on = asyncio.Event()

    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"a")
        await go_on.wait()
        await reply.event(b"b")
        await reply.done()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        with await client.post(PATH, JSON, BODY) as answer:
            basin = Basin()
            pouring = asyncio.ensure_future(answer.pour(basin))
            await until(lambda: basin.body == b"data: a\n\n")
            go_on.set()
            await pouring
            assert basin.body == b"data: a\n\ndata: b\n\ndata: [DONE]\n\n"
            assert (answer.complete, await answer.read()) == (True, b"")
        assert (client.busy, client.idle) == (0, 1)


async def test_a_connection_whose_answer_was_poured_is_used_again(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        for _ in range(3):
            with await client.post(PATH, JSON, [b'{"stream":true}']) as answer:
                basin = Basin()
                await answer.pour(basin)
            assert basin.body.endswith(b"data: [DONE]\n\n")
        assert b"glad" in await ask(client)
        assert [request.connection for request in worker.requests] == [1, 1, 1, 1]


async def test_pouring_ends_when_the_sink_has_enough_and_reading_goes_on(client_for: MakeClient) -> None:
    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"a")
        await seen.wait()
        await reply.event(b"b")
        await reply.done()

    seen = asyncio.Event()
    async with FakeWorker(script) as worker, await client_for(worker.url).post(PATH, JSON, BODY) as answer:
        basin = Basin(enough=b"data: a\n\n")
        await answer.pour(basin)
        assert basin.body == b"data: a\n\n"
        assert not answer.complete
        seen.set()
        rest = b""
        while part := await answer.read():
            rest += part
        assert rest == b"data: b\n\ndata: [DONE]\n\n"


async def test_nothing_runs_between_what_comes_and_the_sink() -> None:
    connection, _ = answering()
    answer, _ = leased(connection)
    basin = Basin()
    turns: list[int] = []

    async def pour() -> None:
        await answer.pour(basin)
        turns.append(len(basin.parts))

    pouring = asyncio.create_task(pour())
    await asyncio.sleep(0)  # now it waits
    waiting = connection._waiter
    for count in range(1, 100):
        connection.data_received(chunk(b"%d" % count))
        assert basin.parts[-1] == (b"%d" % count, chunk(b"%d" % count))
        await asyncio.sleep(0)
        assert connection._waiter is waiting  # or it would wait anew
    assert turns == []
    connection.data_received(END)
    await pouring
    assert turns == [99]
    answer.close()


async def test_what_has_wholly_come_is_poured_without_waiting() -> None:
    connection, _ = answering()
    connection.data_received(chunk(b"a") + END)
    answer, given_back = leased(connection)
    basin = Basin()
    for _ in range(2):
        pouring = asyncio.ensure_future(answer.pour(basin))
        await asyncio.sleep(0)
        assert pouring.done()
    assert basin.parts == [(b"a", None)]
    answer.close()
    assert given_back == [True]


@pytest.mark.parametrize("how", ["close", "reset", "garbage"])
async def test_an_answer_that_breaks_off_pours_what_came_and_fails(client_for: MakeClient, how: str) -> None:
    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(b"a")
        await seen.wait()
        if how == "garbage":
            await reply.send(framed(sse_event(b"b")) + b"no chunk\r\n")  # in one
        reply.reset() if how == "reset" else reply.close()

    seen = asyncio.Event()
    async with FakeWorker(script) as worker:
        client = client_for(worker.url)
        with await client.post(PATH, JSON, BODY) as answer:
            basin = Basin()
            pouring = asyncio.ensure_future(answer.pour(basin))
            await until(lambda: basin.body == b"data: a\n\n")
            seen.set()
            with pytest.raises(WorkerBroke):
                await pouring
        assert basin.body == (b"data: a\n\ndata: b\n\n" if how == "garbage" else b"data: a\n\n")
        assert (answer.complete, client.busy, client.idle) == (False, 0, 0)


async def test_a_worker_that_falls_silent_is_a_timeout(client_for: MakeClient) -> None:
    async def script(_: Received, reply: Reply) -> None:
        head = response_head(200, {"transfer-encoding": "chunked"})
        await reply.send(head + framed(b"a"))  # at once, so that no gap lies between
        await reply.peer_closed()

    async with FakeWorker(script) as worker:
        client = client_for(worker.url, timeouts=Timeouts(connect_s=60, first_byte_s=60, gap_s=0.05))
        with await client.post(PATH, JSON, BODY) as answer:
            basin = Basin()
            with pytest.raises(WorkerTimeout) as caught:
                await answer.pour(basin)
        assert basin.body == b"a"
        assert "no byte within 0.05 s" in caught.value.detail
        await worker.closed_by_peer(1)


async def test_a_failure_after_the_sink_had_enough_is_for_the_next_read() -> None:
    connection, _ = answering()
    answer, _ = leased(connection)
    pouring = asyncio.ensure_future(answer.pour(Basin(enough=b"end")))
    await asyncio.sleep(0)  # now it waits
    connection.data_received(chunk(b"end"))
    connection.connection_lost(ConnectionResetError())
    await pouring
    with pytest.raises(WorkerBroke):
        answer.take()
    with pytest.raises(WorkerBroke):
        await answer.read()
    with pytest.raises(WorkerBroke):
        await answer.pour(Basin())
    answer.close()


async def test_leaving_while_it_pours_closes_the_socket(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        [connection] = client._open
        pouring = asyncio.ensure_future(answer.pour(Basin()))
        await asyncio.sleep(0)  # now it waits
        pouring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pouring
        assert (client.busy, client.idle, connection.sink) == (0, 0, None)
        await worker.closed_by_peer(1)
        with pytest.raises(WorkerError):
            answer.take()


async def test_what_comes_while_it_leaves_goes_nowhere() -> None:
    connection, transport = answering()
    answer, given_back = leased(connection)
    basin = Basin()
    pouring = asyncio.ensure_future(answer.pour(basin))
    await asyncio.sleep(0)  # now it waits
    pouring.cancel()
    connection.data_received(chunk(b"a"))
    with pytest.raises(asyncio.CancelledError):
        await pouring
    assert (given_back, transport.aborted, connection.sink) == ([False], True, None)
    assert basin.body == b"a"  # it had not left yet


async def test_leaving_just_as_the_end_is_poured_leaves_a_sound_connection() -> None:
    connection, transport = answering()
    answer, given_back = leased(connection)
    pouring = asyncio.ensure_future(answer.pour(Basin()))
    await asyncio.sleep(0)  # now it waits
    pouring.cancel()
    connection.data_received(chunk(b"a") + END)
    with pytest.raises(asyncio.CancelledError):
        await pouring
    assert (given_back, transport.aborted, connection.sink) == ([True], False, None)


async def test_closing_an_answer_wakes_the_one_who_pours_it(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        answer = await client_for(worker.url).post(PATH, JSON, BODY)
        pouring = asyncio.ensure_future(answer.pour(Basin()))
        await asyncio.sleep(0)  # now it waits
        answer.close()
        with pytest.raises(WorkerBroke):
            await pouring


async def test_a_sink_that_fails_is_forgotten() -> None:
    connection, _ = answering()
    connection.data_received(chunk(b"a"))
    answer, given_back = leased(connection)

    def fail(_: bytes, __: bytes | None) -> bool:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await answer.pour(fail)
    assert connection.sink is None
    answer.close()
    assert given_back == [False]


# Having the worker wait


async def test_a_worker_faster_than_the_sink_waits_while_it_is_held(client_for: MakeClient) -> None:
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
        with await client.post(PATH, JSON, BODY) as answer:
            basin = Basin()

            def full_at_once(data: bytes, chunks: bytes | None) -> bool:
                answer.hold(len(basin.parts) == 0)
                return basin(data, chunks)

            pouring = asyncio.ensure_future(answer.pour(full_at_once))
            await until(lambda: bool(sent))
            await until_stuck(sent[0])
            assert len(basin.parts) == 1
            assert sent[0].sent_bytes < 20_000_000  # the kernel's buffers, not ours
            answer.hold(False)
            await pouring
            assert len(basin.body) == 1000 * len(flood) + len(b"data: [DONE]\n\n")
        assert client.idle == 1


async def test_hold_after_the_end_of_an_answer_does_nothing(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        await answer.pour(Basin())
        answer.close()
        for is_held in (True, False, True):
            answer.hold(is_held)
        assert b"glad" in await ask(client)
        assert (len(worker.connections), client.idle) == (1, 1)


async def test_hold_on_a_connection_that_was_lost_is_harmless(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        await worker.stop()
        await until(lambda: not client._open)
        for is_held in (True, False):
            answer.hold(is_held)
        answer.close()


async def test_hold_on_a_connection_that_ends_is_harmless(client_for: MakeClient) -> None:
    async with FakeWorker(lambda _, reply: reply.stream_head()) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        answer.hold(True)
        await client.aclose()
        answer.hold(False)
        answer.close()


async def test_a_worker_held_at_the_end_of_its_answer_serves_the_next_request(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        with await client.post(PATH, JSON, [b'{"stream":true}']) as answer:
            await answer.pour(Basin())
            answer.hold(True)  # the caller was full, and left
        async with asyncio.timeout(10):  # and it would not tell: while it is held no clock runs
            assert b"glad" in await ask(client)
        assert [request.connection for request in worker.requests] == [1, 1]

"""Does a request reach its worker, and a failure to reach it its caller?"""

import asyncio
import socket

import pytest

from gateway.errors import ConnectTimeout, WorkerBroke, WorkerTimeout, WorkerUnreachable
from gateway.upstream import Timeouts, WorkerClient
from tests.fakes import FakeWorker, Received, Reply, plain_answer
from tests.gateway.upstream.asking import BODY, JSON, PATH, MakeClient, ask, until, whole


async def test_a_request_arrives_as_it_was_given(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url + "/prefix/", headers=[(b"authorization", b"Bearer w")])
        await whole(await client.post(PATH, [*JSON, (b"x-request-id", b"r1")], [b"{", memoryview(b"}")]))
        [request] = worker.requests
    assert (request.method, request.target, request.body) == ("POST", "/prefix" + PATH, b"{}")
    assert request.headers == {
        "host": f"127.0.0.1:{worker.port}",
        "authorization": "Bearer w",
        "content-type": "application/json",
        "x-request-id": "r1",
        "content-length": "2",
    }


async def test_nagle_is_off(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        await ask(client)
        [connection] = client._open
        of_socket = connection._transport.get_extra_info("socket")
        assert of_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_body_of_50_mb_arrives_whole(client_for: MakeClient) -> None:
    body = bytes(range(256)) * 200_000
    async with FakeWorker(lambda _, reply: reply.json({})) as worker:
        client = client_for(worker.url)
        assert await whole(await client.post(PATH, JSON, [memoryview(body), b"}"])) == b"{}"
        assert worker.requests[0].body == body + b"}"
        assert client.idle == 1


async def test_an_early_answer_comes_while_the_request_is_still_sent(client_for: MakeClient) -> None:
    async def refuse(_: Received, reply: Reply) -> None:
        reply.stop_reading()
        await reply.json({"error": {}}, status=413)

    async with FakeWorker(refuse, at_head=True) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, [memoryview(bytes(50_000_000))])
        assert (answer.status, await whole(answer)) == (413, b'{"error":{}}')
        assert (client.busy, client.idle) == (0, 0)


async def test_a_worker_that_refuses_connections_is_unreachable(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        pass
    with pytest.raises(WorkerUnreachable) as caught:
        await ask(client_for(worker.url))
    assert f"127.0.0.1:{worker.port}" in caught.value.detail
    assert "Refused" in caught.value.detail


async def test_a_name_that_does_not_resolve_is_unreachable(client_for: MakeClient) -> None:
    with pytest.raises(WorkerUnreachable):
        await ask(client_for("http://worker.invalid:8000"))


async def test_a_connection_that_does_not_come_about_is_unreachable(
    client_for: MakeClient, full_backlog: str
) -> None:
    client = client_for(full_backlog, timeouts=Timeouts(connect_s=0.05, first_byte_s=60, gap_s=60))
    with pytest.raises(ConnectTimeout) as caught:
        await ask(client)
    assert "Timeout" in caught.value.detail
    assert client.busy == 0


async def test_no_answer_in_time_is_a_timeout_and_not_tried_again(client_for: MakeClient) -> None:
    async with FakeWorker([plain_answer, lambda _, reply: reply.peer_closed()]) as worker:
        client = client_for(worker.url, timeouts=Timeouts(connect_s=60, first_byte_s=0.3, gap_s=60))
        await ask(client)
        with pytest.raises(WorkerTimeout) as caught:
            await ask(client)
        assert "no answer within 0.3 s" in caught.value.detail
        await worker.closed_by_peer(1)
        assert len(worker.requests) == 2


async def test_a_literal_ipv6_address_works(client_for: MakeClient) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        hosts = [line for line in request.split(b"\r\n") if line.startswith(b"host: ")]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(hosts[0]), hosts[0]))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        client = client_for(f"http://[::1]:{port}")
        assert await ask(client) == b"host: [::1]:%d" % port
        await client.aclose()


def test_ports_default_to_those_of_the_scheme() -> None:
    def port_of(url: str) -> int:
        return WorkerClient(url, timeouts=Timeouts(1, 1, 1), idle_s=1, max_age_s=1)._port

    assert (port_of("http://worker"), port_of("https://worker")) == (80, 443)


NO_URLS = [
    *("worker:8000", "ftp://worker", "http://", "http://a@worker", "http://worker:99999", "http://a..b"),
    *("http://w/?q=1", "http://w/#f", "http://w/a b", "http://wörker", "http://w/\x7f"),
]


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_no_url_of_a_worker_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Port|label"):
        WorkerClient(url, timeouts=Timeouts(1, 1, 1), idle_s=1, max_age_s=1)


@pytest.mark.parametrize("name", [b"host", b"content-length", b"transfer-encoding", b"connection"])
async def test_headers_of_framing_are_refused(client_for: MakeClient, name: bytes) -> None:
    with pytest.raises(ValueError, match="framing"):
        await client_for("http://127.0.0.1:1").post(PATH, [(name, b"1")], [])


@pytest.mark.parametrize("header", [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a\r", b"b")])
async def test_a_header_cannot_break_out_of_its_line(
    client_for: MakeClient, header: tuple[bytes, bytes]
) -> None:
    client = client_for("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="line break"):
        await client.post(PATH, [header], [])
    assert client.busy == 0


async def test_the_caller_hears_when_the_request_is_on_its_way(client_for: MakeClient) -> None:
    sent: list[int] = []

    async with FakeWorker() as worker:
        client = client_for(worker.url)
        for _ in range(2):
            answer = await client.post(PATH, JSON, BODY, lambda: sent.append(client.busy))
            await whole(answer)
        assert sent == [1, 1]


async def test_the_caller_hears_of_no_request_that_was_not_sent(
    client_for: MakeClient, unused_tcp_port: int
) -> None:
    sent: list[bool] = []
    with pytest.raises(WorkerUnreachable):
        await client_for(f"http://127.0.0.1:{unused_tcp_port}").post(
            PATH, JSON, BODY, lambda: sent.append(True)
        )
    assert sent == []


# The end


async def test_the_end_of_a_client_ends_idle_connections(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        (await client.post(PATH, JSON, BODY)).close()
        await until(lambda: not client._open)
        await ask(client)
        await client.aclose()
        assert (client.idle, client._open, client._pool._timer) == (0, set(), None)
        await worker.closed_by_peer(2)


async def test_the_end_of_a_client_ends_requests_and_streams_under_way(client_for: MakeClient) -> None:
    async with FakeWorker(
        [lambda _, reply: reply.stream_head(), lambda _, reply: reply.peer_closed()]
    ) as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        reading, asking = asyncio.ensure_future(answer.read()), asyncio.ensure_future(ask(client))
        await worker.received(2)
        await client.aclose()
        for ended in (reading, asking):
            with pytest.raises(WorkerBroke) as caught:
                await ended
            assert "closed by the gateway" in caught.value.detail
        answer.close()
        assert client.busy == 0
        await worker.closed_by_peer(2)


async def test_the_end_of_a_client_ends_attempts_to_connect(
    client_for: MakeClient, full_backlog: str
) -> None:
    client = client_for(full_backlog, timeouts=Timeouts(connect_s=3600, first_byte_s=60, gap_s=60))
    asking = asyncio.ensure_future(ask(client))
    await until(lambda: client.busy == 1)
    await client.aclose()
    with pytest.raises(WorkerUnreachable):
        await asking


async def test_an_answer_finished_after_the_end_of_its_client_is_not_kept(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        answer = await client.post(PATH, JSON, BODY)
        await client.aclose()
        assert b"glad" in await whole(answer)
        assert (client.busy, client.idle) == (0, 0)


async def test_a_client_that_has_ended_is_unreachable_and_may_end_again(client_for: MakeClient) -> None:
    async with FakeWorker() as worker:
        client = client_for(worker.url)
        await client.aclose()
        await client.aclose()
        with pytest.raises(WorkerUnreachable):
            await ask(client)
        assert worker.connections == []


async def test_a_client_may_end_at_the_moment_an_attempt_to_connect_runs_out(
    client_for: MakeClient, full_backlog: str
) -> None:
    for turns in range(8):
        client = client_for(full_backlog, timeouts=Timeouts(connect_s=0, first_byte_s=60, gap_s=60))
        asking = asyncio.ensure_future(ask(client))
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(WorkerUnreachable):
            await asking


async def test_what_is_silent_ends_where_the_worker_is_given_up_and_what_is_not_goes_on(
    client_for: MakeClient,
) -> None:
    go_on = asyncio.Event()

    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async def talks(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await go_on.wait()
        await reply.chunk(b"a token")
        await reply.send(b"0\r\n\r\n")

    async with FakeWorker([silent, talks, plain_answer]) as worker:
        client = client_for(worker.url)
        waiting = asyncio.ensure_future(ask(client))
        await worker.received(1)
        answer = await client.post(PATH, JSON, BODY)
        with await client.post(PATH, JSON, BODY) as done:  # and its connection idles
            await whole(done)
        client.give_up(3600)
        assert not waiting.done()
        answer.hold(True)  # its silence is ours
        await asyncio.sleep(0.002)  # the loop's clock stands still within a millisecond
        client.give_up(0)
        with pytest.raises(WorkerBroke) as caught:
            await waiting
        assert "takes no connections any more" in caught.value.detail
        answer.hold(False)
        go_on.set()
        assert await whole(answer) == b"a token"
        assert client.idle == 2

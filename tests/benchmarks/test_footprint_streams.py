"""Does the light client see what a stream is, gaps and failures included?"""

import asyncio
import itertools
import json

import pytest

from benchmarks.footprint import streams
from benchmarks.footprint.streams import (
    Gaps,
    RequestFailed,
    Stream,
    TokenCounter,
    asked_streams,
    chat,
    image_chat,
    open_streams,
    reach,
    upload,
)
from benchmarks.footprint.worker import TOKEN
from tests.fakes import FakeWorker, Received, Reply, plain_answer

BODY = chat("smollm2", 5, stream=True)
EVENT = {"choices": [{"index": 0, "delta": {"content": TOKEN}}]}


async def three_tokens(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    for _ in range(3):
        await reply.event(EVENT)
    await reply.done()


async def endless(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.event(EVENT)
    await reply.peer_closed()


async def refuse(request: Received, reply: Reply) -> None:
    await reply.json({"error": {"message": "no such key"}}, status=401)


def test_the_longest_gap_is_that_between_two_tokens() -> None:
    gaps = Gaps()
    for at_s in (5.0, 5.5, 8.0, 8.1):
        gaps.arrival(at_s)

    assert gaps.longest_s == 2.5


def test_a_gap_that_is_going_on_counts_after_a_restart() -> None:
    gaps = Gaps()
    for at_s in (1.0, 9.0):
        gaps.arrival(at_s)
    gaps.restart()

    assert gaps.longest_s == 0
    gaps.arrival(10.5)
    assert gaps.longest_s == 1.5


def test_tokens_are_counted_once_wherever_the_body_is_cut() -> None:
    body = f'data: "{TOKEN}{TOKEN}"\n\ndata: "{TOKEN}"'.encode()

    for first, second in itertools.combinations_with_replacement(range(len(body) + 1), 2):
        counter = TokenCounter()
        pieces = (body[:first], body[first:second], body[second:])
        assert sum(map(counter.feed, pieces)) == 3


async def test_streams_are_handed_out_with_their_first_token_and_hung_up_in_the_end() -> None:
    async with FakeWorker(endless) as worker:
        async with open_streams(4, worker.url, "sk-test", BODY) as opened:
            tokens = [stream.tokens for stream in opened]
            connections = worker.connections_open
        await worker.closed_by_peer(4)

    assert tokens == [1, 1, 1, 1]
    assert connections == 4
    assert {request.headers["authorization"] for request in worker.requests} == {"Bearer sk-test"}
    assert worker.requests[0].json() == json.loads(BODY)


async def test_streams_that_have_asked_need_not_have_been_answered() -> None:
    async def silent(request: Received, reply: Reply) -> None:
        await reply.peer_closed()

    async with FakeWorker(silent) as worker:
        async with asked_streams(3, worker.url, "sk-test", BODY) as asked:
            await worker.received(3)
        await worker.closed_by_peer(3)

    assert [stream.tokens for stream in asked] == [0, 0, 0]


async def test_reach_waits_for_more_tokens_of_every_stream() -> None:
    hold = asyncio.Event()

    async def held(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event(EVENT)
        await hold.wait()
        await reply.event(EVENT)
        await reply.event(EVENT)
        await reply.peer_closed()

    async with FakeWorker(held) as worker, open_streams(2, worker.url, "sk-test", BODY) as opened:
        waiting = asyncio.create_task(reach(opened, 2))
        await worker.received(2)
        assert not waiting.done()
        hold.set()
        await waiting

        assert [stream.tokens for stream in opened] == [3, 3]


async def test_gaps_are_those_of_the_clock() -> None:
    ticks = iter((1.0, 1.25, 4.25))
    async with FakeWorker(paced := PacedTokens(3)) as worker:
        stream = Stream(streams.request_head(worker.url, "k", len(BODY)) + BODY, lambda: next(ticks))
        await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", worker.port)
        for count in (1, 2, 3):
            paced.go.set()
            await stream.reaches(count)
        stream.close()
        await stream.lost

    assert stream.gaps.longest_s == 3.0


class PacedTokens:
    """A script that sends a token each time it is told to."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.go = asyncio.Event()

    async def __call__(self, request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(self.tokens):
            await self.go.wait()
            self.go.clear()
            await reply.event(EVENT)
        await reply.peer_closed()


async def test_a_refused_stream_is_told_with_what_the_server_said() -> None:
    async with FakeWorker(refuse) as worker:
        with pytest.raises(RequestFailed, match=r"after 0 tokens: .*no such key"):
            async with open_streams(2, worker.url, "sk-test", BODY):
                pass


async def test_a_stream_that_ends_while_it_is_waited_for_is_told() -> None:
    async with FakeWorker(three_tokens) as worker, open_streams(1, worker.url, "sk-test", BODY) as opened:
        with pytest.raises(RequestFailed, match="ended after 3 tokens"):
            await opened[0].reaches(4)
        with pytest.raises(RequestFailed, match="ended after 3 tokens"):
            await opened[0].reaches(5)  # long ended by now


async def test_a_server_that_is_not_there_fails_the_streams_at_once() -> None:
    async with FakeWorker() as worker:
        url = worker.url  # free again once the worker has ended

    with pytest.raises(ConnectionRefusedError):
        async with open_streams(3, url, "sk-test", BODY):
            pass


async def test_a_wait_that_is_given_up_does_not_harm_the_stream() -> None:
    arrivals: asyncio.Queue[float] = asyncio.Queue()

    def clock() -> float:
        arrivals.put_nowait(0.0)
        return 0.0

    async with FakeWorker(paced := PacedTokens(2)) as worker:
        stream = Stream(streams.request_head(worker.url, "k", len(BODY)) + BODY, clock)
        await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", worker.port)
        waiting = asyncio.create_task(stream.reaches(1))
        await worker.received(1)
        waiting.cancel()
        paced.go.set()
        await arrivals.get()
        paced.go.set()
        await stream.reaches(2)
        stream.close()
        await stream.lost


async def answer_and_close(request: Received, reply: Reply) -> None:
    await plain_answer(request, reply)
    reply.close()


async def refuse_and_close(request: Received, reply: Reply) -> None:
    await refuse(request, reply)
    reply.close()


async def test_an_upload_arrives_whole() -> None:
    body = image_chat("smollm2", 3 * streams.PIECE_BYTES + 1)
    async with FakeWorker(answer_and_close) as worker:
        await upload(worker.url, "sk-test", body)

    assert worker.requests[0].body == body
    assert worker.requests[0].headers["connection"] == "close"


async def test_an_upload_that_is_refused_is_told() -> None:
    async with FakeWorker(refuse_and_close) as worker:
        with pytest.raises(RequestFailed, match="401"):
            await upload(worker.url, "sk-test", b"{}")


@pytest.mark.parametrize("body_bytes", [1000, 1001, 1002, 1003, 100_000])
def test_a_chat_about_an_image_has_the_size_asked_for(body_bytes: int) -> None:
    body = image_chat("smollm2", body_bytes)

    assert body_bytes - 3 <= len(body) <= body_bytes
    [message] = json.loads(body)["messages"]
    assert message["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")

"""Does a caller see what came of its request, however it ended?"""

import asyncio

import pytest

from benchmarks.footprint.streams import chat
from benchmarks.outage.caller import Answer, ask, ask_steadily
from benchmarks.outage.worker import MODEL, CountingWorker
from tests.fakes import FakeWorker, Received, Reply
from tests.vllm_answers import response_head

BODY = chat(MODEL, 2, "hello", stream=False)


def answer(**more: object) -> Answer:
    parts: dict[str, object] = {
        "begun_s": 1.0,
        "ended_s": 3.5,
        "status": 200,
        "headers": {},
        "is_whole": True,
    }
    return Answer(**(parts | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "is_served"),
    [
        (answer(), True),
        (answer(status=429), False),
        (answer(is_whole=False), False),
        (answer(status=0, is_whole=False), False),
    ],
)
def test_only_a_whole_answer_with_200_is_served(given: Answer, is_served: bool) -> None:
    assert (given.is_served, given.took_s) == (is_served, 2.5)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_whole_answer_is_known_as_such(stream: bool) -> None:
    async with CountingWorker(0.0) as worker:
        # A worker keeps its connections: the answer's own end is all there is to see.
        got = await ask(worker.url, "sk-any", chat(MODEL, 2, "hello", stream=stream))
    assert got.is_served
    assert got.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
    assert got.begun_s < got.ended_s


async def test_the_request_carries_the_key_and_asks_for_the_connection_to_be_closed() -> None:
    async def refuse(request: Received, reply: Reply) -> None:
        body = b"{}"
        head = response_head(429, {"X-RateLimit-Remaining-Requests": "0", "content-length": str(len(body))})
        await reply.send(head + body)

    async with FakeWorker(refuse) as worker:
        got = await ask(worker.url, "sk-any", BODY)
    assert (got.status, got.headers["x-ratelimit-remaining-requests"]) == (429, "0")
    [request] = worker.requests
    assert request.headers["authorization"] == "Bearer sk-any"
    assert request.headers["connection"] == "close"
    assert request.body == BODY


async def test_a_stream_that_breaks_off_is_not_whole() -> None:
    async def breaks_off(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": []})
        reply.close()

    async with FakeWorker(breaks_off) as worker:
        got = await ask(worker.url, "sk-any", BODY)
    assert (got.status, got.is_whole) == (200, False)


async def test_a_connection_that_is_reset_raises_nothing() -> None:
    async def resets(request: Received, reply: Reply) -> None:
        reply.reset()

    async with FakeWorker(resets) as worker:
        got = await ask(worker.url, "sk-any", BODY)
    assert (got.status, got.is_whole) == (0, False)


async def test_nobody_there_is_an_answer_too() -> None:
    got = await ask("http://127.0.0.1:9", "sk-any", BODY)
    assert (got.status, got.headers, got.is_whole) == (0, {}, False)


async def test_steady_callers_do_not_wait_for_each_other_and_all_are_waited_for() -> None:
    over, answered = asyncio.Event(), asyncio.Event()
    begun = 0

    async def one() -> Answer:
        nonlocal begun
        begun += 1
        if begun == 3:
            over.set()
            answered.set()
        await answered.wait()
        return answer(status=begun)

    async with asyncio.timeout(60):
        answers = await ask_steadily(1000, over, one)
    assert [each.status for each in answers] == [3, 3, 3]

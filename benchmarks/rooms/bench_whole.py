"""The whole gateway, from a caller's bytes to a caller's bytes, with nothing but sockets left out."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.overhead.requests import STREAM_TOKENS
from benchmarks.rooms.conftest import STEPS, Timed
from benchmarks.rooms.ends import ignore
from benchmarks.rooms.stand import (
    ANSWER,
    ANSWER_BODY,
    ANSWER_ENDS,
    CALLERS,
    STREAM_ENDS,
    WORDS,
    event,
    journal,
    request,
    settings,
)
from benchmarks.rooms.wires import GUARD_S, Crowd, Hear, Loop, answer_to, served
from gateway.app import Gateway

STREAMS = 64  # in a batch


@contextmanager
def gateway(loop: Loop) -> Iterator[None]:
    """Composed as in production, but for what runs beside requests: probes and the loops that learn."""
    made = settings()

    async def composed() -> Gateway:
        return Gateway(made, journal())

    whole = loop.run_until_complete(composed())
    for member in whole.fleet.members.values():
        whole.fleet.healthy(member)
    with served(loop, whole.public, made.server):
        yield


def answers(loop: Loop) -> Callable[[asyncio.Protocol], Hear]:
    """A worker that answers in the loop's next turn."""

    def hears(protocol: asyncio.Protocol) -> Hear:
        return lambda data: ignore(loop.call_soon(protocol.data_received, ANSWER))

    return hears


def streams(loop: Loop, tokens: int) -> Callable[[asyncio.Protocol], Hear]:
    """A worker that sends a token in each turn of the loop."""
    ending = WORDS.usage(tokens) + WORDS.ending

    def hears(protocol: asyncio.Protocol) -> Hear:
        receive = protocol.data_received

        def send(left: int) -> None:
            if left:
                receive(WORDS.token)
                loop.call_soon(send, left - 1)
            else:
                receive(ending)

        def begin() -> None:
            receive(WORDS.opening)
            loop.call_soon(send, tokens)

        return lambda data: ignore(loop.call_soon(begin))

    return hears


def bench_whole_plain(loop: Loop, timed: Timed) -> None:
    loop.hears = answers(loop)
    asked = request(stream=False)
    with gateway(loop):
        heard = loop.run_until_complete(answer_to(loop, asked, ANSWER_ENDS))
        assert heard.startswith(b"HTTP/1.1 200 ")
        assert heard.endswith(ANSWER_BODY)
        crowd = loop.run_until_complete(gathered(loop, asked, ANSWER_ENDS))
        timed(crowd.ask, STEPS)


@pytest.mark.parametrize("tokens", [0, STREAM_TOKENS])
def bench_whole_stream(tokens: int, loop: Loop, timed: Timed) -> None:
    loop.hears = streams(loop, tokens)
    asked = request(stream=True)
    with gateway(loop):
        heard = loop.run_until_complete(answer_to(loop, asked, STREAM_ENDS))
        assert heard.startswith(b"HTTP/1.1 200 ")
        assert heard.count(event(WORDS.token)) == tokens
        crowd = loop.run_until_complete(gathered(loop, asked, STREAM_ENDS))
        timed(crowd.ask, STREAMS)


async def gathered(loop: Loop, asked: bytes, ends: Collection[bytes]) -> Crowd:
    return Crowd(loop, CALLERS, asked, ends)


def bench_pour(loop: Loop, timed: Timed) -> None:
    """A chunk of a stream that is under way: from the worker's connection to its caller's."""
    heard: list[int] = []
    began: asyncio.Future[None] = loop.create_future()

    def hear(data: bytes) -> None:
        if not began.done():
            if event(WORDS.opening.partition(b"\r\n\r\n")[2]) in data:
                began.set_result(None)
        else:
            heard[0] += 1

    async def begin() -> asyncio.Protocol:
        loop.hears = lambda protocol: (
            lambda data: ignore(loop.call_soon(protocol.data_received, WORDS.opening))
        )
        loop.call(hear).data_received(request(stream=True))
        async with asyncio.timeout(GUARD_S):
            await began
        heard.append(0)
        return loop.to_workers[-1]

    async def pour(count: int) -> None:
        for _ in range(count):
            receive(WORDS.token)

    async def end() -> None:
        receive(WORDS.ending)

    with gateway(loop):
        receive = loop.run_until_complete(begin()).data_received
        loop.run_until_complete(pour(1))
        assert heard == [1], "a chunk does not go straight to the caller"
        timed(pour)
        loop.run_until_complete(end())

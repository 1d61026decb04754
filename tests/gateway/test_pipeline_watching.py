"""When does a prompt count as read, and what does an answer tell of how fast its worker is?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import WorkerBroke
from gateway.estimates import Speed
from gateway.fleet import Slot
from gateway.pipeline import NOTICED_S
from tests.fakes import Received, Reply, plain_answer
from tests.gateway.fleet.workers import NotingCoefficients
from tests.gateway.test_pipeline import PROMPT, Caller, Hall, body, hall


class Silence:
    """A worker that says nothing until it is told to. Then it answers as usual."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Received, reply: Reply) -> None:
        self.began.set()
        await self.ended.wait()
        await plain_answer(request, reply)


@asynccontextmanager
async def walking(at: Hall, silent: Silence, caller: Caller) -> AsyncIterator[None]:
    """The worker has the request, and answers afterwards."""
    task = asyncio.create_task(at.walk(caller))
    try:
        await silent.began.wait()
        yield
    finally:
        silent.ended.set()
        await task


def takes(first_token_s: float) -> Speed:
    """The speed of a worker that needs so long for any prompt."""
    return Speed(first_token_s=first_token_s, prefill_token_s=0.0)


@pytest.mark.parametrize("speed", [Speed(), takes(0.0), takes(NOTICED_S * 0.999)])
async def test_a_short_prompt_whose_answer_is_not_streamed_counts_as_read_at_once(speed: Speed) -> None:
    silent = Silence()
    async with hall(silent) as (at, _):
        at.member.speed = speed
        async with walking(at, silent, Caller(body())):
            assert (at.member.load.prefilling, at.member.in_flight) == (0, 1)


async def test_one_that_takes_longer_counts_as_read_after_that_time() -> None:
    silent, heard = Silence(), asyncio.Event()
    async with hall(silent) as (at, _):
        at.member.speed = takes(NOTICED_S)
        at.fleet.on_room = lambda model: heard.set()
        async with walking(at, silent, Caller(body())), asyncio.timeout(10):
            await heard.wait()
            assert (at.member.load.prefilling, at.member.in_flight) == (0, 1)


async def test_and_not_before() -> None:
    silent = Silence()
    async with hall(silent) as (at, _):
        at.member.speed = takes(3600)
        async with walking(at, silent, Caller(body())):
            assert at.member.load.prefilling == 1


async def test_once_it_has_ended_nobody_waits_any_longer_for_its_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: list[str] = []
    monkeypatch.setattr(Slot, "prompt_done", lambda slot: times.append(slot.member.id))
    async with hall() as (at, _):
        at.member.speed = takes(0.05)
        await at.walk(Caller(body()))
        later = asyncio.Event()  # as late as the prompt's end, had it been waited for, or later
        asyncio.get_running_loop().call_later(0.05, later.set)
        await later.wait()
    assert times == ["w0"]  # told by the answer


@pytest.mark.parametrize("piped", [False, True])
async def test_the_prompt_of_a_stream_counts_as_read_with_its_first_token_alone(piped: bool) -> None:
    silent = Silence()
    async with hall(silent) as (at, _):
        at.member.speed = takes(0.0)
        async with walking(at, silent, Caller(body(stream=True), piped)):
            assert at.member.load.prefilling == 1


@pytest.mark.parametrize("piped", [False, True])
async def test_a_stream_teaches_how_fast_its_worker_is(piped: bool) -> None:
    noting, got = NotingCoefficients(), asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        at.clock.now += 0.5
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await got.wait()
        for _ in range(9):
            await reply.event({"choices": [{"text": "a"}]})
        await reply.done()

    async with hall(script) as (at, _):
        at.member.coefficients = noting
        caller = Caller(body(stream=True), piped)

        def goes_on() -> None:
            if not got.is_set():
                at.clock.now += 2
            got.set()

        caller.on_write = goes_on
        await at.walk(caller)
    assert noting.prompts == [(0, PROMPT, 0.5)]
    assert noting.streams == [(10, 2.0, 1.0, 0)]


@pytest.mark.parametrize("piped", [False, True])
async def test_a_stream_that_broke_teaches_by_what_came_of_it(piped: bool) -> None:
    noting = NotingCoefficients()

    async def breaks(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.event({"choices": [{"text": "a"}]})
        await reply.send(b"no chunk\r\n")

    async with hall(breaks) as (at, _):
        at.member.coefficients = noting
        caller = Caller(body(stream=True), piped)

        def goes_on() -> None:
            at.clock.now += 2

        caller.on_write = goes_on
        await at.fails(WorkerBroke, caller)
    assert noting.streams == [(1, 2.0, 1.0, 0)]


async def test_an_answer_that_is_not_streamed_teaches_nothing_of_the_workers_speed() -> None:
    silent, noting = Silence(), NotingCoefficients()
    async with hall(silent) as (at, _):
        at.member.coefficients = noting
        async with walking(at, silent, Caller(body())):
            at.clock.now += 1
    assert (noting.prompts, noting.streams) == ([], [])

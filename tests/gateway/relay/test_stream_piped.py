"""Does a stream pass from a worker's connection to its caller with no task in between, and wait for both?"""

import random
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import GatewayError, WorkerBroke, WorkerFailed
from gateway.model import Headers, Usage
from tests.gateway.relay.live import Live, flowing, rounds
from tests.gateway.relay.relaying import DONE, TOKEN, USAGE, error_event, framed
from tests.gateway.upstream.feeding import END

# As it comes


async def test_what_comes_is_with_the_caller_before_any_task_has_run() -> None:
    live = await flowing()
    waiting = live.connection._waiter
    several = framed(TOKEN) + framed(TOKEN)
    for count in range(1, 50):
        live.connection.data_received(framed(TOKEN) if count % 2 else several)
        assert len(live.caller.chunks) == count  # at once
        await rounds()
        assert live.connection._waiter is waiting  # nobody was woken
    assert live.caller.chunks[:2] == [framed(TOKEN), several]  # as they came
    assert live.caller.piped == []
    await live.feed(framed(DONE))
    await live.end()
    assert live.ran.trip.events == 1 + 25 + 2 * 24
    assert (live.caller.last, live.given_back) == (DONE, [True])


async def test_frames_pass_only_with_all_that_is_in_them() -> None:
    live = await flowing()
    await live.feed(framed(TOKEN + USAGE), framed(TOKEN[:5]), framed(TOKEN[5:]), framed(TOKEN), framed(USAGE))
    assert live.caller.piped == [TOKEN, TOKEN]
    assert live.caller.chunks == [framed(TOKEN)]
    await live.feed(framed(TOKEN)[:-1], b"\n" + framed(TOKEN))  # not between two chunks
    assert live.caller.piped == [TOKEN] * 4
    await live.feed(framed(DONE))
    await live.end()
    assert live.caller.body == TOKEN * 6 + DONE
    assert live.ran.trip.usage == Usage(7, 2)


async def test_frames_of_usage_pass_to_a_caller_who_asked_for_it() -> None:
    live = await flowing(wants_usage=True)
    await live.feed(framed(TOKEN), framed(USAGE), framed(DONE))
    await live.end()
    assert live.caller.body == TOKEN * 2 + USAGE + DONE
    assert live.ran.trip.usage == Usage(7, 2)


async def test_what_came_before_the_pipe_goes_first() -> None:
    live = Live()
    await rounds()

    def comes_meanwhile() -> None:
        live.caller.on_write = lambda: None
        live.connection.data_received(framed(TOKEN + TOKEN))

    live.caller.on_write = comes_meanwhile  # while the first token is sent
    await live.feed(framed(TOKEN), framed(TOKEN), framed(DONE))
    await live.end()
    assert (live.caller.writes, live.caller.last) == ([TOKEN, TOKEN + TOKEN, TOKEN], DONE)
    assert (live.caller.piped, live.caller.chunks) == ([TOKEN + TOKEN], [framed(TOKEN)])


async def test_a_done_that_came_before_the_pipe_ends_the_stream() -> None:
    live = Live()
    await rounds()

    def comes_meanwhile() -> None:
        live.caller.on_write = lambda: None
        live.connection.data_received(framed(TOKEN + DONE) + END)

    live.caller.on_write = comes_meanwhile
    await live.feed(framed(TOKEN))
    await live.task
    assert (live.caller.writes, live.caller.last) == ([TOKEN], TOKEN + DONE)
    assert (live.given_back, live.ran.trip.outcome) == ([True], "ok")


# The same by a pipe and without

STREAM = framed(TOKEN) + framed(TOKEN + USAGE) + framed(TOKEN[:9]) + framed(TOKEN[9:] + TOKEN)
ENDS = {
    "done": framed(DONE) + END,
    "done with a token": framed(TOKEN + DONE) + END,
    "no done": END,
    "half an event": framed(TOKEN[:7]) + END,
    "error": framed(TOKEN + error_event(500) + TOKEN) + END,
    "refusal, too late": framed(error_event(400)) + END,
    "broken chunk": framed(TOKEN) + b"no chunk\r\n",
    "broken chunk after done": framed(DONE) + b"no chunk\r\n",
    "cut off": framed(TOKEN)[:-3],
    "bytes after the end": framed(DONE) + END + b"HTTP/1.1 200 OK\r\n",
}


class Ran(NamedTuple):
    """What the caller got, and what is known of it."""

    status: int
    headers: Headers
    body: bytes
    has_ended: bool
    events: int
    usage: Usage | None
    outcome: str
    told: list[tuple[float, float, int]]
    failure: type[GatewayError] | None
    detail: str
    given_back: list[bool]


async def ran(pieces: list[bytes], piped: bool, waits: list[bool] | None = None) -> Ran:
    """With those pieces the loop goes round after which it `waits`; all, unless it is said."""
    live = Live(piped=piped)
    await rounds()
    for piece, goes_round in zip(pieces, waits or [True] * len(pieces), strict=True):
        if not live.transport.aborted:
            live.connection.data_received(piece)
        if goes_round:
            await rounds()
    if not live.transport.aborted:
        live.connection.eof_received()
    failure, detail = None, ""
    try:
        await live.task
    except GatewayError as error:
        failure, detail = type(error), error.detail
    assert live.connection.sink is None
    caller, trip = live.caller, live.ran.trip
    return Ran(
        *(caller.status, caller.headers, caller.body, caller.last is not None),
        *(trip.events, trip.usage, trip.outcome, live.ran.watching.told),
        *(failure, detail, live.given_back),
    )


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
async def test_a_stream_cut_at_any_place_is_the_same_with_a_pipe_and_without(end: bytes) -> None:
    text = STREAM + end
    for at in range(1, len(text)):
        assert await ran([text[:at], text[at:]], piped=True) == await ran([text[:at], text[at:]], piped=False)


@pytest.mark.parametrize("piped", [True, False])
@pytest.mark.parametrize(
    ("end", "tokens", "outcome", "failure"),
    [
        ("done", 2, "ok", None),
        ("no done", 2, "incomplete", None),
        ("error", 3, "", WorkerFailed),
        ("broken chunk", 3, "", WorkerBroke),
        ("broken chunk after done", 2, "ok", None),
        ("cut off", 2, "", WorkerBroke),
        ("bytes after the end", 2, "ok", None),
    ],
)
async def test_and_it_is_what_it_should_be(
    piped: bool, end: str, tokens: int, outcome: str, failure: type[GatewayError] | None
) -> None:
    got = await ran([framed(TOKEN), framed(TOKEN), ENDS[end]], piped)
    assert got.body == TOKEN * tokens + (DONE if outcome == "ok" else b"")
    assert (got.events, got.outcome, got.failure) == (tokens, outcome, failure)
    assert (got.has_ended, got.given_back) == (failure is None, [end in ("done", "no done", "error")])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ENDS)), st.sets(st.integers(1, 400), max_size=8), st.randoms())
async def test_so_it_is_however_it_is_cut_and_whenever_the_loop_goes_round(
    end: str, cuts: set[int], dice: random.Random
) -> None:
    text = STREAM + ENDS[end]
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    waits = [dice.random() < 0.7 for _ in pieces]
    by_pipe, by_reads = [await ran(pieces, piped, waits) for piped in (True, False)]
    if by_reads.failure is not None:  # what had come after that by then decides if the connection is sound
        by_pipe, by_reads = by_pipe._replace(given_back=[]), by_reads._replace(given_back=[])
    assert by_pipe._replace(told=[]) == by_reads._replace(told=[])  # what a read joins is told as one

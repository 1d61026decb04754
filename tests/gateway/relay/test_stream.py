"""Do events reach the caller as they come, and is the same known of them, whichever way they go?"""

import asyncio

import pytest

from gateway import sse
from gateway.errors import Overloaded, WorkerBroke, WorkerError, WorkerFailed, WorkerTimeout
from gateway.model import Usage
from gateway.relay import stream as relayed
from tests.gateway.relay.relaying import DONE, JSON, SSE, TOKEN, USAGE, StreamOf, after, error_event
from tests.gateway.test_model import Clock


async def test_a_stream_passes_as_it_comes_and_ends_with_its_last_event(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN, TOKEN + TOKEN, DONE).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN + TOKEN], DONE)
    assert (ran.trip.outcome, ran.trip.events, ran.trip.usage) == ("ok", 3, None)


async def test_a_stream_is_never_buffered_or_cached_on_its_way(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN, DONE).run()
    assert (ran.caller.status, ran.caller.length, ran.caller.is_reply) == (200, None, False)
    assert ran.caller.headers == [SSE, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


async def test_a_whole_stream_in_one_read_leaves_in_one_write(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN + DONE).run()
    assert (ran.caller.writes, ran.caller.last, ran.trip.outcome) == ([], TOKEN + DONE, "ok")


async def test_tokens_that_come_with_done_leave_with_it(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN, TOKEN, TOKEN + TOKEN + DONE).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], TOKEN + TOKEN + DONE)
    assert (ran.trip.outcome, ran.trip.events) == ("ok", 4)


@pytest.mark.parametrize("cut", range(1, len(DONE)))
async def test_done_may_come_in_two_reads(stream_of: StreamOf, cut: int) -> None:
    ran = await stream_of(TOKEN, TOKEN + DONE[:cut], DONE[cut:]).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], DONE)
    assert (ran.trip.outcome, ran.trip.events) == ("ok", 2)


async def test_usage_is_kept_from_a_caller_who_did_not_ask_for_it(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN, USAGE, TOKEN + USAGE, DONE).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], DONE)
    assert (ran.trip.usage, ran.trip.events) == (Usage(7, 2), 2)


async def test_usage_reaches_a_caller_who_asked_for_it(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN, USAGE, TOKEN + USAGE, DONE, wants_usage=True).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, USAGE, TOKEN + USAGE], DONE)
    assert (ran.trip.usage, ran.trip.events) == (Usage(7, 2), 2)


async def test_half_an_event_waits_for_its_other_half(stream_of: StreamOf) -> None:
    ran = await stream_of(TOKEN[:5], TOKEN[5:] + TOKEN[:5], TOKEN[5:-1], TOKEN[-1:], DONE).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], DONE)


async def test_a_comment_does_not_settle_the_status(stream_of: StreamOf) -> None:
    comment = b": the worker is alive\n\n"
    ran = await stream_of(comment, error_event(400)).run()
    assert (ran.caller.status, ran.watching.heard_nothing) == (400, True)
    ran = await stream_of(comment, TOKEN, comment, DONE).run()
    assert ran.caller.writes == [comment + TOKEN, comment]


async def test_the_times_of_tokens_are_noted(stream_of: StreamOf) -> None:
    clock = Clock()
    gaps_s = ((5, TOKEN), (0.0625, TOKEN), (0.5, TOKEN), (3, DONE))
    ran = await stream_of(*(after(clock, *gap) for gap in gaps_s), clock=clock).run()
    assert ran.watching.first_tokens == [1005.0] == [ran.trip.first_token_at]
    assert ran.watching.prompts_done == []
    assert ran.trip.gaps is not None
    assert (ran.trip.gaps.counts, ran.trip.gaps.total) == ([1, 1, 1], 3.5625)


async def test_the_end_alone_is_no_gap(stream_of: StreamOf) -> None:
    clock = Clock()
    ran = await stream_of(TOKEN, after(clock, 0.5, TOKEN), after(clock, 3, b""), clock=clock).run()
    assert ran.trip.gaps is not None
    assert (ran.trip.gaps.counts, ran.trip.gaps.total) == ([0, 1, 0], 0.5)


async def test_every_fourth_gap_is_told(stream_of: StreamOf) -> None:
    clock = Clock(0.0)
    reads = [after(clock, 1, TOKEN) for _ in range(14)]  # the nth token comes at n
    ran = await stream_of(*reads, DONE, clock=clock).run()
    assert ran.watching.told == [(1.0, 5.0, 4), (5.0, 9.0, 4), (9.0, 13.0, 4)]


async def test_several_tokens_of_one_read_are_told_as_so_many(stream_of: StreamOf) -> None:
    clock = Clock(0.0)
    ran = await stream_of(*(after(clock, 1, TOKEN * 3) for _ in range(4)), DONE, clock=clock).run()
    assert ran.watching.told == [(1.0, 3.0, 6)]
    assert ran.trip.events == 12


async def test_gaps_need_not_be_counted_and_are_told_all_the_same(stream_of: StreamOf) -> None:
    ran = stream_of(*[TOKEN] * 5, DONE)
    ran.trip.gaps = None
    await ran.run()
    assert (ran.trip.outcome, ran.watching.told) == ("ok", [(1000.0, 1000.0, 4)])


async def test_how_far_a_stream_has_come_can_be_seen_all_the_time(stream_of: StreamOf) -> None:
    seen: list[object] = []
    ran = stream_of(TOKEN, TOKEN + TOKEN, DONE)
    ran.caller.on_write = lambda: seen.append(ran.trip.progress and ran.trip.progress.events)
    await ran.run()
    assert seen == [1, 3, 3]


async def test_a_giant_first_event_passes_in_parts_rather_than_be_kept(stream_of: StreamOf) -> None:
    half = b"data: " + b"x" * sse.MAX_PENDING_BYTES
    ran = await stream_of(half, b"x\n\n" + TOKEN, DONE).run()
    assert (ran.caller.writes, ran.caller.last) == ([half, b"x\n\n" + TOKEN], DONE)
    assert (ran.trip.outcome, ran.watching.first_tokens) == ("ok", [1000.0])
    assert ran.trip.progress is not None
    assert ran.trip.progress.may_be_inside


# Before the first event


@pytest.mark.parametrize("code", [400, 404, 422, 429])
async def test_a_refusal_in_the_first_event_becomes_the_status_it_names(
    stream_of: StreamOf, code: int
) -> None:
    event = error_event(code)
    ran = await stream_of(event[:9], event[9:] + DONE).run()
    assert (ran.caller.status, ran.caller.headers, ran.caller.is_reply) == (code, [JSON], True)
    assert ran.caller.last == event[6:-2]  # the worker's own words
    assert ran.caller.length == len(event) - 8
    assert (ran.trip.outcome, ran.trip.events, ran.watching.heard_nothing) == ("worker_refused", 0, True)


@pytest.mark.parametrize("code", [500, 502, "BadRequestError", None, 200, 700, 1.5])
async def test_any_other_error_in_the_first_event_is_the_workers_failure(
    stream_of: StreamOf, code: object
) -> None:
    ran = stream_of(error_event(code, "CUDA out of memory"))
    error = await ran.fails(WorkerFailed)
    assert "CUDA out of memory" in error.detail
    assert "CUDA" not in error.message
    assert (ran.caller.status, ran.trip.outcome) == (0, "")


async def test_an_error_that_is_only_text_is_the_workers_failure(stream_of: StreamOf) -> None:
    error = await stream_of(b'data: {"error":"boom"}\n\n').fails(WorkerFailed)
    assert error.detail == 'the worker answered 502: {"error":"boom"}'


async def test_a_full_worker_that_says_so_in_its_first_event_is_an_overload(stream_of: StreamOf) -> None:
    error = await stream_of(error_event(503)).fails(Overloaded)
    assert error.retry_after_s == 1


@pytest.mark.parametrize("error", [WorkerBroke("reset"), WorkerTimeout("silent")])
async def test_a_worker_that_dies_before_its_first_event_has_not_begun(
    stream_of: StreamOf, error: WorkerError
) -> None:
    ran = stream_of(TOKEN[:5], error)
    await ran.fails(type(error))
    assert (ran.caller.status, ran.watching.heard_nothing, ran.trip.events) == (0, True, 0)


@pytest.mark.parametrize("reads", [[], [TOKEN[:5]], [b": alive\n\n"]])
async def test_a_stream_that_ends_before_its_first_event_is_a_failure(
    stream_of: StreamOf, reads: list[bytes]
) -> None:
    ran = stream_of(*reads)
    error = await ran.fails(WorkerFailed)
    assert error.detail == "a stream ended before its first event"
    assert ran.caller.status == 0


# In mid-stream


async def test_an_error_in_mid_stream_ends_it_after_what_came_before(stream_of: StreamOf) -> None:
    ran = stream_of(TOKEN, TOKEN + error_event(400, "secret") + TOKEN)
    error = await ran.fails(WorkerFailed)
    assert error.detail == 'in mid-stream: {"error": {"message": "secret", "code": 400}}'
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], None)  # the door tells the rest
    assert (ran.trip.events, ran.trip.outcome) == (2, "")


async def test_an_error_that_comes_with_the_first_event_comes_after_it(stream_of: StreamOf) -> None:
    ran = stream_of(TOKEN, error_event(400) + TOKEN)
    await ran.fails(WorkerFailed)
    assert (ran.caller.writes, ran.trip.events) == ([TOKEN], 1)


async def test_an_error_alone_in_mid_stream_sends_nothing_of_its_own(stream_of: StreamOf) -> None:
    ran = stream_of(TOKEN, error_event(500))
    await ran.fails(WorkerFailed)
    assert ran.caller.writes == [TOKEN]


@pytest.mark.parametrize("error", [WorkerBroke("reset"), WorkerTimeout("silent")])
async def test_a_worker_that_dies_in_mid_stream_is_told_with_what_it_did(
    stream_of: StreamOf, error: WorkerError
) -> None:
    ran = stream_of(TOKEN, TOKEN + USAGE, error)
    await ran.fails(type(error))
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], None)
    assert (ran.trip.events, ran.trip.usage) == (2, Usage(7, 2))


async def test_a_caller_who_leaves_takes_along_what_was_counted(stream_of: StreamOf) -> None:
    ran = stream_of(TOKEN, TOKEN)
    ran.script.endless = True
    running = asyncio.create_task(ran.run())
    while len(ran.caller.writes) < 2:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (ran.trip.events, ran.trip.outcome, ran.caller.last) == (2, "", None)


# The end


@pytest.mark.parametrize("rest", [b"", TOKEN[:7]])
async def test_a_stream_that_ends_without_done_is_incomplete_and_nothing_is_made_up(
    stream_of: StreamOf, rest: bytes
) -> None:
    ran = await stream_of(TOKEN, TOKEN, *filter(None, [rest])).run()
    assert (ran.caller.writes, ran.caller.last) == ([TOKEN, TOKEN], rest)
    assert (ran.trip.outcome, ran.trip.events) == ("incomplete", 2)


async def test_a_stream_of_nothing_but_done_is_a_stream(stream_of: StreamOf) -> None:
    ran = await stream_of(DONE).run()
    assert (ran.caller.last, ran.trip.outcome, ran.trip.events) == (DONE, "ok", 0)


async def test_the_outcome_is_noted_before_the_end_leaves(stream_of: StreamOf) -> None:
    for reads, outcome in (((TOKEN, DONE), "ok"), ((TOKEN,), "incomplete")):
        ran = await stream_of(*reads).run()
        assert ran.outcomes == ["", outcome]


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_end_of_the_body_is_taken_after_the_last_event(stream_of: StreamOf, is_there: bool) -> None:
    ran = stream_of(TOKEN, DONE, b": bye\n\n", b": bye\n\n")
    ran.script.is_there = is_there
    await ran.run()
    assert ran.script.reads == []
    assert ran.caller.last == DONE


async def test_an_end_that_has_come_is_not_waited_for(stream_of: StreamOf) -> None:
    ran = stream_of(TOKEN, DONE, b"")
    ran.script.is_there = ran.script.endless = True
    await ran.run()
    assert (ran.script.reads, ran.trip.outcome) == ([], "ok")


@pytest.mark.parametrize("error", [WorkerBroke("reset"), WorkerTimeout("silent")])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_worker_that_dies_after_its_last_event_has_done_its_work(
    stream_of: StreamOf, error: WorkerError, is_there: bool
) -> None:
    ran = stream_of(TOKEN, DONE, error)
    ran.script.is_there = is_there  # it died before the caller had taken the end
    await ran.run()
    assert (ran.caller.last, ran.trip.outcome) == (DONE, "ok")


async def test_a_body_that_does_not_end_is_not_waited_for(
    stream_of: StreamOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed, "LINGER_S", 0.01)
    ran = stream_of(TOKEN, DONE)
    ran.script.endless = True
    await ran.run()
    assert (ran.caller.last, ran.trip.outcome) == (DONE, "ok")

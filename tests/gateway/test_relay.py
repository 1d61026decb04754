"""Do a worker's bytes reach the caller as they are, and its failures in words of ours?"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway import relay
from gateway.errors import (
    GatewayError,
    Overloaded,
    WorkerBroke,
    WorkerError,
    WorkerFailed,
    WorkerRefusedCredentials,
    WorkerTimeout,
)
from gateway.model import Headers, Job, Trip, Usage
from gateway.relay import Relay
from gateway.tally import Tally
from tests.gateway.test_model import Clock, job, trip

JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")

PLAIN = b'{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
TOKEN = b'data: {"choices":[{"text":"hi"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"

Read = bytes | Exception | Callable[[], bytes]


class ScriptedAnswer:
    """Gives out its reads one after the other, then the end."""

    def __init__(
        self, reads: Sequence[Read], status: int = 200, headers: Headers = (JSON,), length: int | None = None
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.length = length
        self.reads = list(reads)
        self.endless = False

    async def read(self) -> bytes:
        if not self.reads:
            if self.endless:
                await asyncio.Event().wait()
            return b""
        match self.reads.pop(0):
            case Exception() as error:
                raise error
            case bytes() as data:
                return data
            case make:
                return make()

    def take(self) -> bytes | None:
        return None  # every read is waited for


class Sink:
    """Keeps what went to the caller, each write apart."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.length: int | None = None
        self.writes: list[bytes] = []
        self.last: bytes | None = None  # what the end came with

    async def start(self, status: int, headers: Headers, length: int | None) -> None:
        assert not self.status
        self.status, self.headers, self.length = status, list(headers), length

    async def send(self, data: bytes) -> None:
        assert self.status
        assert self.last is None
        self.writes.append(data)

    async def finish(self, data: bytes) -> None:
        assert self.status
        assert self.last is None
        self.last = data

    @property
    def body(self) -> bytes:
        return b"".join(self.writes) + (self.last or b"")


class Watching:
    """Keeps what it is told of the worker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first_tokens: list[float] = []  # when each came
        self.prompts_done: list[float] = []
        self.told: list[tuple[float, float, int]] = []

    def first_token(self) -> None:
        self.first_tokens.append(self.clock())

    def prompt_done(self) -> None:
        self.prompts_done.append(self.clock())

    def tokens(self, since_s: float, now_s: float, count: int) -> None:
        self.told.append((since_s, now_s, count))

    @property
    def heard_nothing(self) -> bool:
        return not (self.first_tokens or self.prompts_done or self.told)


class Run:
    """One answer relayed."""

    def __init__(self, answer: ScriptedAnswer, clock: Clock | None = None, **fields: Any) -> None:
        self.answer = answer
        self.clock = clock or Clock()
        self.sink = Sink()
        self.job: Job = job(**fields)
        self.trip: Trip = trip(gaps=Tally((0.1, 1.0)) if self.job.stream else None)
        self.watching = Watching(self.clock)

    async def run(self) -> "Run":
        await Relay(self.clock).run(self.answer, self.job, self.sink, self.trip, self.watching)
        return self

    async def fails(self, kind: type[GatewayError]) -> GatewayError:
        with pytest.raises(kind) as caught:
            await self.run()
        return caught.value


async def plain(*reads: Read, **answer: Any) -> Run:
    return await Run(ScriptedAnswer(reads, **answer)).run()


def stream_of(*reads: Read, clock: Clock | None = None, **fields: Any) -> Run:
    answer = ScriptedAnswer(reads, headers=(SSE,))
    return Run(answer, clock, stream=True, **fields)


async def stream(*reads: Read, **fields: Any) -> Run:
    return await stream_of(*reads, **fields).run()


def after(clock: Clock, seconds: float, data: bytes) -> Callable[[], bytes]:
    """A read that takes so long."""

    def read() -> bytes:
        clock.now += seconds
        return data

    return read


def error_event(code: object, message: str = "no such thing") -> bytes:
    return b"data: " + json.dumps({"error": {"message": message, "code": code}}).encode() + b"\n\n"


# Plain answers


async def test_a_plain_answer_passes_with_its_length_and_its_usage_is_read() -> None:
    ran = await plain(PLAIN, length=len(PLAIN))
    assert (ran.sink.status, ran.sink.length, ran.sink.headers) == (200, len(PLAIN), [JSON])
    assert (ran.sink.writes, ran.sink.last) == ([], PLAIN)  # the end comes with the bytes
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", Usage(7, 2))
    assert ran.trip.first_token_at == 1000.0


async def test_the_first_bytes_of_a_plain_answer_tell_that_its_prompt_is_done_and_no_more() -> None:
    clock = Clock()
    ran = await Run(ScriptedAnswer([after(clock, 5, PLAIN[:9]), after(clock, 2, PLAIN[9:])]), clock).run()
    assert ran.watching.prompts_done == [1005.0] == [ran.trip.first_token_at]
    assert (ran.watching.first_tokens, ran.watching.told) == ([], [])


async def test_a_plain_answer_of_many_reads_passes_read_by_read() -> None:
    ran = await plain(PLAIN[:10], PLAIN[10:20], PLAIN[20:])
    assert (ran.sink.writes, ran.sink.last) == ([PLAIN[:10], PLAIN[10:20]], PLAIN[20:])
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", Usage(7, 2))
    assert ran.sink.length is None


async def test_an_empty_answer_is_an_answer() -> None:
    ran = await plain(status=204)
    assert (ran.sink.status, ran.sink.last) == (204, b"")


@pytest.mark.parametrize("body", [b'{"usage":null}', b"{}"])
async def test_an_answer_without_usage_is_whole_all_the_same(body: bytes) -> None:
    ran = await plain(body)
    assert (ran.trip.outcome, ran.trip.usage) == ("ok", None)


async def test_an_answer_that_is_no_json_passes_and_counts_as_incomplete() -> None:
    ran = await plain(b"{")
    assert (ran.sink.body, ran.trip.outcome, ran.trip.usage) == (b"{", "incomplete", None)


@pytest.mark.parametrize(("limit", "usage"), [(len(PLAIN), Usage(7, 2)), (len(PLAIN) - 1, None)])
async def test_an_answer_too_large_to_keep_passes_unread(
    limit: int, usage: Usage | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_READ_BYTES", limit)
    ran = await plain(PLAIN[:30], PLAIN[30:])
    assert (ran.sink.body, ran.trip.outcome, ran.trip.usage) == (PLAIN, "ok", usage)


async def test_what_tells_about_the_worker_stays_behind() -> None:
    private = [(name, b"x") for name in relay.PRIVATE_HEADERS]
    ran = await plain(PLAIN, headers=[*private, JSON, (b"x-more", b"1"), (b"retry-after", b"7")])
    assert ran.sink.headers == [JSON, (b"x-more", b"1"), (b"retry-after", b"7")]


@pytest.mark.parametrize("status", [400, 404, 422, 429])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_workers_own_refusal_passes_as_it_is(status: int, streamed: bool) -> None:
    body = b'{"error":{"message":"too long"},"usage":{"prompt_tokens":7}}'
    headers = (JSON, (b"retry-after", b"7"))
    ran = await Run(ScriptedAnswer([body], status, headers, len(body)), stream=streamed).run()
    assert (ran.sink.status, ran.sink.body, ran.sink.headers) == (status, body, list(headers))
    assert (ran.trip.outcome, ran.trip.usage) == ("worker_refused", None)


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_ours_and_not_the_callers(status: int) -> None:
    ran = Run(ScriptedAnswer([b"secret"], status))
    error = await ran.fails(WorkerRefusedCredentials)
    assert error.detail == f"the worker answered {status}; check its api_key_env"
    assert ran.sink.status == 0


@pytest.mark.parametrize("status", [500, 502, 504, 302, 304])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_workers_own_failure_is_for_the_log(status: int, streamed: bool) -> None:
    ran = Run(ScriptedAnswer([b"Trace", b"back"], status, (SSE,)), stream=streamed)
    error = await ran.fails(WorkerFailed)
    assert error.detail == f"the worker answered {status}: Traceback"
    assert "Traceback" not in error.message
    assert (ran.sink.status, ran.watching.heard_nothing) == (0, True)


async def test_a_worker_that_is_full_says_to_come_back() -> None:
    error = await Run(ScriptedAnswer([b"busy"], 503)).fails(Overloaded)
    assert (error.retry_after_s, error.detail) == (1, "the worker answered 503: busy")


async def test_no_more_of_a_failure_is_read_than_the_log_takes() -> None:
    ran = Run(ScriptedAnswer([b"x" * 1500, b"\xff" * 1500, b"never read"], 500))
    error = await ran.fails(WorkerFailed)
    assert ran.answer.reads == [b"never read"]
    assert error.detail == "the worker answered 500: " + "x" * 1500 + "\ufffd" * 500


async def test_a_plain_answer_that_breaks_before_its_first_byte_has_not_begun() -> None:
    ran = Run(ScriptedAnswer([WorkerBroke("reset")]))
    await ran.fails(WorkerBroke)
    assert (ran.sink.status, ran.watching.heard_nothing) == (0, True)


async def test_a_plain_answer_that_breaks_later_is_not_ended_as_if_whole() -> None:
    ran = Run(ScriptedAnswer([b'{"a":', b"1", WorkerBroke("reset")]))
    await ran.fails(WorkerBroke)
    assert (ran.sink.body, ran.sink.last, ran.trip.outcome) == (b'{"a":', None, "")


async def test_a_caller_who_asked_for_a_stream_gets_what_is_none_as_it_is() -> None:
    ran = await Run(ScriptedAnswer([PLAIN]), stream=True).run()
    assert (ran.sink.body, ran.sink.headers, ran.trip.usage) == (PLAIN, [JSON], Usage(7, 2))


async def test_a_stream_that_nobody_asked_for_is_read_as_plain() -> None:
    ran = await Run(ScriptedAnswer([TOKEN + DONE], headers=(SSE,))).run()
    assert (ran.sink.body, ran.trip.outcome) == (TOKEN + DONE, "incomplete")


async def test_an_answer_without_a_content_type_is_plain() -> None:
    ran = await Run(ScriptedAnswer([PLAIN], headers=()), stream=True).run()
    assert (ran.sink.headers, ran.trip.outcome) == ([], "ok")


# Streams


async def test_a_stream_passes_as_it_comes_and_ends_with_its_last_event() -> None:
    ran = await stream(TOKEN, TOKEN + TOKEN, DONE)
    assert (ran.sink.writes, ran.sink.last) == ([TOKEN, TOKEN + TOKEN], DONE)
    assert (ran.trip.outcome, ran.trip.events, ran.trip.usage) == ("ok", 3, None)


async def test_a_stream_is_never_buffered_or_cached_on_its_way() -> None:
    ran = await stream(TOKEN, DONE)
    assert (ran.sink.status, ran.sink.length) == (200, None)
    assert ran.sink.headers == [SSE, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


async def test_a_whole_stream_in_one_read_leaves_in_one_write() -> None:
    ran = await stream(TOKEN + DONE)
    assert (ran.sink.writes, ran.sink.last, ran.trip.outcome) == ([], TOKEN + DONE, "ok")


async def test_usage_is_kept_from_a_caller_who_did_not_ask_for_it() -> None:
    ran = await stream(TOKEN, USAGE, DONE)
    assert (ran.sink.body, ran.trip.usage, ran.trip.events) == (TOKEN + DONE, Usage(7, 2), 1)


async def test_usage_reaches_a_caller_who_asked_for_it() -> None:
    ran = await stream(TOKEN, USAGE, DONE, wants_usage=True)
    assert (ran.sink.body, ran.trip.usage, ran.trip.events) == (TOKEN + USAGE + DONE, Usage(7, 2), 1)


async def test_half_an_event_waits_for_its_other_half() -> None:
    ran = await stream(TOKEN[:5], TOKEN[5:] + TOKEN[:5], TOKEN[5:], DONE)
    assert (ran.sink.writes, ran.sink.last) == ([TOKEN, TOKEN], DONE)


async def test_a_comment_does_not_settle_the_status() -> None:
    comment = b": the worker is alive\n\n"
    ran = await stream(comment, error_event(400))
    assert (ran.sink.status, ran.watching.heard_nothing) == (400, True)
    ran = await stream(comment, TOKEN, DONE)
    assert ran.sink.body == comment + TOKEN + DONE


async def test_the_times_of_tokens_are_noted() -> None:
    clock = Clock()
    gaps_s = ((5, TOKEN), (0.0625, TOKEN), (0.5, TOKEN), (3, DONE))
    ran = await stream(*(after(clock, *gap) for gap in gaps_s), clock=clock)
    assert ran.watching.first_tokens == [1005.0] == [ran.trip.first_token_at]
    assert ran.watching.prompts_done == []
    assert ran.trip.gaps is not None
    assert (ran.trip.gaps.counts, ran.trip.gaps.total) == ([1, 1, 1], 3.5625)


async def test_every_fourth_gap_is_told() -> None:
    clock = Clock(0.0)
    reads = [after(clock, 1, TOKEN) for _ in range(14)]  # the nth token comes at n
    ran = await stream(*reads, DONE, clock=clock)
    assert ran.watching.told == [(1.0, 5.0, 4), (5.0, 9.0, 4), (9.0, 13.0, 4)]


async def test_gaps_need_not_be_counted_and_are_told_all_the_same() -> None:
    ran = stream_of(*[TOKEN] * 5, DONE)
    ran.trip.gaps = None
    await ran.run()
    assert (ran.trip.outcome, ran.watching.told) == ("ok", [(1000.0, 1000.0, 4)])


@pytest.mark.parametrize("code", [400, 404, 422, 429])
async def test_a_refusal_in_the_first_event_becomes_the_status_it_names(code: int) -> None:
    event = error_event(code)
    ran = await stream(event[:9], event[9:] + DONE)
    assert (ran.sink.status, ran.sink.headers) == (code, [JSON])
    assert ran.sink.last == event[6:-2]  # the worker's own words
    assert ran.sink.length == len(event) - 8
    assert (ran.trip.outcome, ran.trip.events, ran.watching.heard_nothing) == ("worker_refused", 0, True)


@pytest.mark.parametrize("code", [500, 502, "BadRequestError", None, 200, 700, 1.5])
async def test_any_other_error_in_the_first_event_is_the_workers_failure(code: object) -> None:
    ran = stream_of(error_event(code, "CUDA out of memory"))
    error = await ran.fails(WorkerFailed)
    assert "CUDA out of memory" in error.detail
    assert "CUDA" not in error.message
    assert ran.sink.status == 0


async def test_an_error_that_is_only_text_is_the_workers_failure() -> None:
    error = await stream_of(b'data: {"error":"boom"}\n\n').fails(WorkerFailed)
    assert error.detail == 'the worker answered 502: {"error":"boom"}'


async def test_a_full_worker_that_says_so_in_its_first_event_is_an_overload() -> None:
    assert (await stream_of(error_event(503)).fails(Overloaded)).retry_after_s == 1


async def test_an_error_in_mid_stream_ends_it_after_what_came_before() -> None:
    ran = stream_of(TOKEN, TOKEN + error_event(400, "secret") + TOKEN)
    error = await ran.fails(WorkerFailed)
    assert error.detail == 'in mid-stream: {"error": {"message": "secret", "code": 400}}'
    assert (ran.sink.writes, ran.sink.last) == ([TOKEN, TOKEN], None)  # the door tells the rest
    assert ran.trip.events == 2


async def test_an_error_alone_in_mid_stream_sends_nothing_of_its_own() -> None:
    ran = stream_of(TOKEN, error_event(500))
    await ran.fails(WorkerFailed)
    assert ran.sink.writes == [TOKEN]


@pytest.mark.parametrize("error", [WorkerBroke("reset"), WorkerTimeout("silent")])
async def test_a_worker_that_dies_in_mid_stream_is_told_with_what_it_did(error: WorkerError) -> None:
    ran = stream_of(TOKEN, TOKEN + USAGE, error)
    await ran.fails(type(error))
    assert (ran.sink.writes, ran.sink.last) == ([TOKEN, TOKEN], None)
    assert (ran.trip.events, ran.trip.usage) == (2, Usage(7, 2))


async def test_a_worker_that_dies_before_its_first_event_has_not_begun() -> None:
    ran = stream_of(TOKEN[:5], WorkerBroke("reset"))
    await ran.fails(WorkerBroke)
    assert (ran.sink.status, ran.watching.heard_nothing, ran.trip.events) == (0, True, 0)


async def test_a_stream_that_ends_before_its_first_event_is_a_failure() -> None:
    ran = stream_of(TOKEN[:5])
    error = await ran.fails(WorkerFailed)
    assert error.detail == "a stream ended before its first event"
    assert ran.sink.status == 0


async def test_a_stream_that_ends_without_done_is_incomplete_and_nothing_is_made_up() -> None:
    ran = await stream(TOKEN, TOKEN[:7])
    assert (ran.sink.writes, ran.sink.last) == ([TOKEN], TOKEN[:7])
    assert ran.trip.outcome == "incomplete"


async def test_a_stream_of_nothing_but_done_is_a_stream() -> None:
    ran = await stream(DONE)
    assert (ran.sink.last, ran.trip.outcome, ran.trip.events) == (DONE, "ok", 0)


async def test_the_end_of_the_body_is_taken_after_the_last_event() -> None:
    ran = await stream(TOKEN, DONE, b": bye\n\n", b": bye\n\n")
    assert ran.answer.reads == []
    assert ran.sink.last == DONE


@pytest.mark.parametrize("error", [WorkerBroke("reset"), WorkerTimeout("silent")])
async def test_a_worker_that_dies_after_its_last_event_has_done_its_work(error: WorkerError) -> None:
    ran = await stream(TOKEN, DONE, error)
    assert (ran.sink.last, ran.trip.outcome) == (DONE, "ok")


async def test_a_body_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "LINGER_S", 0.01)
    ran = stream_of(TOKEN, DONE)
    ran.answer.endless = True
    await ran.run()
    assert (ran.sink.last, ran.trip.outcome) == (DONE, "ok")


async def test_a_caller_who_leaves_takes_along_what_was_counted() -> None:
    ran = stream_of(TOKEN, TOKEN)
    ran.answer.endless = True
    running = asyncio.create_task(ran.run())
    while len(ran.sink.writes) < 2:  # noqa: ASYNC110 - each pass of the loop brings it further
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (ran.trip.events, ran.trip.outcome, ran.sink.last) == (2, "", None)

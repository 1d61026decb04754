"""Is an answer sent as it is, with what was learnt by the way, and every failure told in its place?"""

import asyncio
import json

import pytest

from gateway.errors import BadRequest, Draining, WorkerBroke
from tests.gateway.test_exchange import JSON, SSE, TOLD, FakeLine, exchange, told
from tests.gateway.test_model import Clock


class FakePipe:
    def write(self, data: bytes) -> None: ...
    def write_chunks(self, chunks: bytes) -> None: ...


async def test_a_whole_answer_is_one_word() -> None:
    line, clock = FakeLine(), Clock()
    made = exchange(line, clock)
    clock.now += 0.5
    await made.reply(200, [JSON, (b"x-more", b"1")], b"{}")
    status, headers, body = line.answer()
    assert (status, body, made.trip.status, made.started) == (200, b"{}", 200, True)
    assert headers == {
        JSON[0]: JSON[1],
        b"x-more": b"1",
        b"x-request-id": b"req-1",
        b"openai-processing-ms": b"500",
    }


async def test_an_answer_of_known_length_has_its_head_when_its_first_part_is_there() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [JSON], 4)
    assert (line.heard, made.started, made.trip.status) == ([], True, 200)
    made.trip.worker = "w1"  # it is told what is known when it leaves
    await made.send(b"{  ")
    await made.finish(b"}")
    [(_, status, head, length), *parts] = line.heard
    assert (status, length) == (200, 4)
    assert told(head).keys() == {b"content-type", b"x-gateway-worker"} | TOLD
    assert parts == [("send", b"{  "), ("finish", b"}")]


async def test_an_answer_of_known_length_may_have_a_single_part() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [JSON], 2)
    await made.finish(b"{}")
    assert line.said() == ["start", "finish"]
    assert line.heard[1] == ("finish", b"{}")


async def test_a_stream_has_its_head_at_once_and_no_length() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [SSE], None)
    [(_, status, head, length)] = line.heard
    assert (status, length) == (200, None)
    assert told(head).keys() == {b"content-type"} | TOLD
    assert made.started
    await made.send(b"data: a\n\n")
    await made.finish(b"data: [DONE]\n\n")
    assert line.heard[1:] == [("send", b"data: a\n\n"), ("finish", b"data: [DONE]\n\n")]


# How long a caller takes nothing


@pytest.mark.parametrize("what", ["reply", "start", "send", "finish", "finish of known length"])
async def test_how_long_a_caller_takes_nothing_can_be_seen(what: str) -> None:
    line, clock = FakeLine(), Clock()
    made = exchange(line, clock)
    if what in ("send", "finish"):
        await made.start(200, [SSE], None)
    if what == "finish of known length":
        await made.start(200, [JSON], 2)
    words = {
        "reply": lambda: made.reply(200, [JSON], b"{}"),
        "start": lambda: made.start(200, [SSE], None),
        "send": lambda: made.send(b"data: a\n\n"),
    }
    seen = [made.sending_since]
    line.takes.clear()
    sending = asyncio.create_task(words.get(what, made.finish)())
    await asyncio.sleep(0)
    clock.now += 5
    seen.append(made.sending_since)
    line.takes.set()
    await sending
    seen.append(made.sending_since)
    assert seen == [None, clock.now - 5, None]


async def test_a_pipe_is_the_lines_and_tells_how_long_a_caller_takes_nothing() -> None:
    line, clock = FakeLine(), Clock()
    line.to_pipe = FakePipe()
    made = exchange(line, clock)
    await made.start(200, [SSE], None)
    held: list[bool] = []
    assert made.pipe(held.append) is line.to_pipe
    assert line.on_full is not None
    line.on_full(True)
    assert (held, made.sending_since) == ([True], clock.now)
    line.on_full(False)
    assert (held, made.sending_since) == ([True, False], None)


async def test_where_a_line_has_no_pipe_there_is_none() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [SSE], None)
    assert made.pipe(lambda is_full: None) is None


# Failures


async def test_an_error_before_the_answer_is_told_by_its_status() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.fail(Draining("Later.", retry_after_s=1, detail="for the log"))
    status, headers, body = line.answer()
    assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
    assert headers.keys() == {b"content-type", b"retry-after", b"retry-after-ms", b"connection"} | TOLD
    assert (made.trip.status, made.trip.outcome, made.trip.detail) == (503, "draining", "for the log")


async def test_an_error_before_the_head_has_left_takes_its_place() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [JSON], 500)
    await made.fail(WorkerBroke("reset"))
    status, headers, body = line.answer()
    assert (status, made.trip.status) == (502, 502)
    assert json.loads(body) == WorkerBroke("reset").body()
    assert headers.keys() == {b"content-type"} | TOLD


@pytest.mark.parametrize("length", [None, 500])
async def test_an_error_while_the_head_waits_for_the_caller_takes_its_place(length: int | None) -> None:
    line = FakeLine()
    made = exchange(line)

    async def begin() -> None:
        await made.start(200, [SSE], length)
        await made.send(b"data: a\n\n")

    line.takes.clear()
    beginning = asyncio.create_task(begin())
    await asyncio.sleep(0)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    line.takes.set()
    await made.fail(Draining("Bye.", retry_after_s=1))
    status, _, _ = line.answer()
    assert (status, made.trip.status) == (503, 503)


async def test_an_error_in_mid_stream_is_the_streams_last_event() -> None:
    line = FakeLine()
    made = exchange(line)
    await made.start(200, [SSE], None)
    await made.send(b"data: a\n\n")
    await made.fail(WorkerBroke("reset"))
    what, data = line.heard[-1]
    assert what == "finish"
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    error = WorkerBroke("reset").body()["error"]
    error["message"] += " (request id req-1)"
    assert json.loads(data[6:]) == {"error": error}
    assert (made.trip.status, made.trip.outcome, made.trip.detail) == (200, "worker_failed", "reset")
    assert line.aborted == 0


@pytest.mark.parametrize("length", [None, 500])
async def test_an_error_in_the_middle_of_a_plain_answer_cuts_it_short(length: int | None) -> None:
    line = FakeLine()
    made = exchange(line)
    await made.body()
    await made.start(200, [JSON], length)
    await made.send(b'{"choices":')
    await made.fail(WorkerBroke("reset"))
    assert line.aborted == 1
    assert line.said() == ["start", "send"]
    assert made.trip.outcome == "worker_failed"
    assert line.on_lost is not None
    line.on_lost()  # which the abort brings about
    assert made.gone == ""


async def test_an_error_of_the_caller_is_told_likewise() -> None:
    line = FakeLine()
    await exchange(line).fail(BadRequest("No.", param="n"))
    status, _, body = line.answer()
    assert (status, json.loads(body)["error"]["param"]) == (400, "n")

"""Does a connection keep its clocks, its backpressure and its exchanges apart? Fed by hand, no network."""

import pytest

from gateway.errors import FirstByteTimeout, GapTimeout, WorkerBroke
from gateway.upstream.connection import HIGH_WATER_BYTES, StaleConnection, Timeouts
from tests.gateway.upstream.feeding import (
    BRIEF_S,
    END,
    HASTY,
    HEAD,
    asked,
    chunk,
    failure_of,
    opened,
    time_passes,
)


async def test_a_small_request_is_one_write() -> None:
    connection, transport, _ = opened()
    connection.send(b"HEAD", [b"a", memoryview(b"bc")], 3)
    assert (transport.writes, transport.written) == (["write"], [b"HEADabc"])
    connection.connection_lost(None)


async def test_a_large_body_is_written_without_joining_it() -> None:
    connection, transport, _ = opened()
    body = bytes(100_000)
    connection.send(b"HEAD", [memoryview(body), b"}"], len(body) + 1)
    assert (transport.writes, transport.written) == (["writelines"], [b"HEAD", body, b"}"])
    connection.connection_lost(None)


async def test_an_answer_arrives_the_same_cut_at_every_position() -> None:
    text = HEAD + chunk(b"data: a\n\n") + chunk(b"data: b\n\n") + END
    for at in range(1, len(text)):
        connection, _ = asked()
        body = b""
        for piece in (text[:at], text[at:]):
            connection.data_received(piece)
            body += connection.take() or b""
        assert (connection.exhausted, body) == (True, b"data: a\n\ndata: b\n\n")
        assert connection.take() == b""
        assert connection.reusable
        connection.connection_lost(None)


async def test_take_gives_none_while_nothing_has_come() -> None:
    connection, _ = asked()
    assert connection.take() is None
    connection.data_received(HEAD + b"5\r\n")
    assert connection.take() is None
    connection.connection_lost(None)


async def test_every_arrival_wakes_the_one_who_waits() -> None:
    connection, _ = asked()
    waiting = connection.arrival()
    connection.data_received(HEAD)
    assert waiting.done()
    waiting = connection.arrival()
    connection.data_received(chunk(b"a"))
    assert waiting.done()
    connection.connection_lost(None)


async def test_what_came_before_a_failure_is_read_before_it() -> None:
    connection, _ = asked()
    connection.data_received(HEAD + chunk(b"a"))
    connection.connection_lost(ConnectionResetError("reset by peer"))
    assert connection.take() == b"a"
    with pytest.raises(WorkerBroke) as caught:
        connection.take()
    assert "w:1" in caught.value.detail
    assert "reset by peer" in caught.value.detail


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("how", ["eof", "reset"])
async def test_only_a_reused_connection_that_ends_without_a_byte_is_stale(reused: bool, how: str) -> None:
    connection, transport, _ = opened()
    if reused:
        connection.send(b"HEAD", [], 0)
        connection.data_received(HEAD + END)
        connection.park()
    connection.send(b"HEAD", [], 0)
    if how == "eof":
        connection.eof_received()
        assert transport.aborted
    else:
        connection.connection_lost(ConnectionResetError())
    failure = await failure_of(connection)
    assert type(failure) is (StaleConnection if reused else WorkerBroke)
    connection.connection_lost(None)


async def test_a_reused_connection_that_ends_after_one_byte_is_broken_not_stale() -> None:
    connection, _ = asked()
    connection.data_received(HEAD + END)
    connection.park()
    connection.send(b"HEAD", [], 0)
    connection.data_received(b"H")
    connection.connection_lost(None)
    assert type(await failure_of(connection)) is WorkerBroke


async def test_a_request_on_a_closing_connection_fails_at_once() -> None:
    connection, transport, _ = opened()
    transport.closing = True
    with pytest.raises(WorkerBroke):
        connection.send(b"HEAD", [], 0)
    assert transport.written == []


async def test_bytes_on_an_idle_connection_end_it() -> None:
    connection, transport = asked()
    connection.data_received(HEAD + END)
    connection.park()
    connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert transport.aborted


async def test_bytes_before_the_first_request_end_the_connection() -> None:
    connection, transport, _ = opened()
    connection.data_received(b"220 mail ready\r\n")
    assert transport.aborted


async def test_broken_bytes_end_the_connection_at_once() -> None:
    connection, transport = asked()
    connection.data_received(b"not http at all")
    assert transport.aborted
    assert "not HTTP" in (await failure_of(connection)).detail


@pytest.mark.parametrize(
    "spoiled_by", ["unsent request", "closing", "not all taken", "not all come", "close"]
)
async def test_a_connection_with_a_loose_end_is_not_reusable(spoiled_by: str) -> None:
    connection, transport = asked()
    said_close = b"connection: close\r\n\r\n" if spoiled_by == "close" else b"\r\n"
    connection.data_received(HEAD[:-2] + said_close + chunk(b"a"))
    if spoiled_by != "not all come":
        connection.data_received(END)
    if spoiled_by != "not all taken":
        connection.take()
    transport.unsent_bytes = 5 if spoiled_by == "unsent request" else 0
    transport.closing = spoiled_by == "closing"
    assert not connection.reusable
    connection.connection_lost(None)


async def test_losing_the_connection_is_told_once() -> None:
    connection, _, lost = opened()
    connection.connection_lost(None)
    assert lost == [connection]


async def test_reading_pauses_above_the_high_water_mark_and_resumes_when_taken() -> None:
    connection, transport = asked()
    connection.data_received(HEAD + chunk(bytes(HIGH_WATER_BYTES)))
    assert transport.calls == []
    connection.data_received(chunk(b"x"))
    assert transport.calls == ["pause"]
    connection.data_received(chunk(b"y"))  # what the loop had read already
    assert len(connection.take() or b"") == HIGH_WATER_BYTES + 2
    assert transport.calls == ["pause", "resume"]
    connection.connection_lost(None)


async def test_reading_is_not_paused_once_all_has_come() -> None:
    connection, transport = asked()
    connection.data_received(HEAD + chunk(bytes(HIGH_WATER_BYTES + 1)) + END)
    assert transport.calls == []
    connection.connection_lost(None)


async def test_no_answer_in_time_is_a_timeout_and_ends_the_connection() -> None:
    connection, transport = asked(Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=60))
    failure = await failure_of(connection)
    assert (type(failure), transport.aborted) == (FirstByteTimeout, True)
    assert "no answer within 0.02 s" in failure.detail


async def test_an_unfinished_head_does_not_move_the_first_byte_clock() -> None:
    connection, _ = asked(Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=60))
    connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD[:-1])
    assert "no answer within" in (await failure_of(connection)).detail


async def test_a_head_without_a_body_does_not_stop_the_first_byte_clock() -> None:
    connection, _ = asked(Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=60))
    connection.data_received(HEAD)
    assert "no answer within" in (await failure_of(connection)).detail


async def test_silence_within_the_body_is_a_timeout() -> None:
    connection, _ = asked(Timeouts(connect_s=60, first_byte_s=60, gap_s=BRIEF_S))
    connection.data_received(HEAD + chunk(b"a"))
    failure = await failure_of(connection)
    assert type(failure) is GapTimeout
    assert "no byte within 0.02 s" in failure.detail
    assert connection.take() == b"a"


async def test_the_gap_clock_stands_still_while_we_pause_reading() -> None:
    connection, transport = asked(Timeouts(connect_s=60, first_byte_s=60, gap_s=BRIEF_S))
    connection.data_received(HEAD + chunk(bytes(HIGH_WATER_BYTES + 1)))
    await time_passes()  # several gaps of the paused one have passed
    assert not transport.aborted
    connection.take()
    assert type(await failure_of(connection)) is GapTimeout


async def test_an_answer_that_has_come_does_not_time_out_while_it_waits_to_be_read() -> None:
    connection, transport = asked(HASTY)
    connection.data_received(HEAD + chunk(b"a") + END)
    await time_passes()
    assert not transport.aborted
    assert connection.take() == b"a"


async def test_a_connection_has_one_timer_however_many_requests_and_chunks() -> None:
    connection, _ = asked()
    timer = connection._timer
    for _ in range(3):
        connection.data_received(HEAD + chunk(b"a"))
        connection.data_received(chunk(b"b") + END)
        connection.take()
        connection.park()
        connection.send(b"HEAD", [], 0)
    assert connection._timer is timer
    connection.connection_lost(None)
    assert timer is not None
    assert timer.cancelled()


async def test_the_clock_runs_again_for_a_request_after_an_idle_time() -> None:
    connection, _ = asked(HASTY)
    connection.data_received(HEAD + END)
    connection.park()
    await time_passes()  # the timer of the idle one has run out meanwhile
    connection.send(b"HEAD", [], 0)
    assert type(await failure_of(connection)) is FirstByteTimeout


async def test_a_request_has_its_whole_first_byte_time_however_often_the_timer_looks() -> None:
    connection, transport = asked(Timeouts(connect_s=60, first_byte_s=60, gap_s=BRIEF_S))
    await time_passes()  # the timer of the first has looked several times
    assert not transport.aborted
    connection.connection_lost(None)


async def test_the_gap_is_counted_from_the_latest_arrival() -> None:
    connection, transport = asked(Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=60))
    connection._since -= 1000  # the request was long ago
    connection.data_received(HEAD + chunk(b"a"))
    await time_passes()  # the timer of the first has looked several times
    assert not transport.aborted
    connection.connection_lost(None)

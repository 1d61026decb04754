"""Do clocks and backpressure of a connection keep to what is poured and held?"""

import pytest

from gateway.errors import GapTimeout
from gateway.upstream.connection import HIGH_WATER_BYTES, Timeouts
from tests.gateway.upstream.feeding import (
    BRIEF_S,
    END,
    HEAD,
    Basin,
    answering,
    asked,
    chunk,
    failure_of,
    time_passes,
)

BRIEF_GAPS = Timeouts(connect_s=60, first_byte_s=60, gap_s=BRIEF_S)


# Clocks


async def test_silence_while_it_pours_is_a_timeout() -> None:
    connection, transport = answering(timeouts=BRIEF_GAPS)
    connection.pour(Basin())
    failure = await failure_of(connection)
    assert (type(failure), transport.aborted) == (GapTimeout, True)
    assert "no byte within 0.02 s" in failure.detail


@pytest.mark.parametrize("piece", [chunk(b"a"), b"1;x\r\na\r\n"], ids=["whole chunk", "parsed"])
async def test_the_gap_is_counted_from_what_was_poured_last(piece: bytes) -> None:
    connection, transport = answering(timeouts=Timeouts(connect_s=60, first_byte_s=BRIEF_S, gap_s=60))
    connection.pour(Basin())
    connection._since -= 1000  # the last byte was long ago
    connection.data_received(piece)
    await time_passes()  # the timer has looked several times
    assert not transport.aborted
    connection.connection_lost(None)


async def test_nobody_is_silent_while_held_and_the_silence_after_it_counts_anew() -> None:
    connection, transport = answering(timeouts=BRIEF_GAPS)
    connection.pour(Basin())
    connection.hold(True)
    await time_passes()
    assert not transport.aborted
    held_until = connection._loop.time()
    connection.hold(False)
    assert connection._since >= held_until
    assert type(await failure_of(connection)) is GapTimeout


# Backpressure


async def test_reading_goes_on_however_much_is_poured() -> None:
    connection, transport = answering()
    basin = Basin()
    connection.pour(basin)
    flood = bytes(HIGH_WATER_BYTES + 1)
    for piece in (
        chunk(flood),
        b"%x;x\r\n%b\r\n" % (len(flood), flood),
        flood_in_halves := chunk(flood)[:-9],
    ):
        connection.data_received(piece)
    connection.data_received(chunk(flood)[len(flood_in_halves) :])
    assert (len(basin.body), transport.calls) == (3 * len(flood), [])
    connection.connection_lost(None)


async def test_reading_that_was_paused_goes_on_once_what_had_come_is_poured() -> None:
    connection, transport = asked()
    connection.data_received(HEAD + chunk(bytes(HIGH_WATER_BYTES + 1)))
    assert transport.calls == ["pause"]
    connection.pour(Basin())
    assert transport.calls == ["pause", "resume"]
    connection.connection_lost(None)


async def test_reading_pauses_again_above_the_high_water_mark_after_the_sink_has_enough() -> None:
    connection, transport = answering()
    connection.pour(Basin(enough=b"end"))
    connection.data_received(chunk(b"end"))
    connection.data_received(chunk(bytes(HIGH_WATER_BYTES + 1)))
    assert transport.calls == ["pause"]
    connection.take()
    assert transport.calls == ["pause", "resume"]
    connection.connection_lost(None)


async def test_hold_stops_reading_until_it_is_over_however_often_it_is_said() -> None:
    connection, transport = answering()
    connection.hold(False)
    assert transport.calls == []
    connection.hold(True)
    connection.hold(True)
    assert transport.calls == ["pause"]
    connection.hold(False)
    connection.hold(False)
    assert transport.calls == ["pause", "resume"]
    connection.connection_lost(None)


async def test_a_sink_may_have_the_worker_held_and_gets_what_the_loop_had_read_already() -> None:
    connection, transport = answering()
    got: list[bytes] = []

    def full_at_once(data: bytes, _: bytes | None) -> bool:
        got.append(data)
        connection.hold(True)
        return True

    connection.pour(full_at_once)
    connection.data_received(chunk(b"a"))
    connection.data_received(chunk(b"b"))
    assert (got, transport.calls) == ([b"a", b"b"], ["pause"])
    connection.hold(False)
    connection.data_received(chunk(b"c"))
    assert (got, transport.calls) == ([b"a", b"b", b"c"], ["pause", "resume", "pause"])
    connection.connection_lost(None)


async def test_a_connection_is_read_again_when_it_is_parked_though_its_caller_was_held_to_the_end() -> None:
    connection, transport = answering()
    connection.pour(Basin())
    connection.data_received(chunk(b"a") + END)
    connection.hold(True)  # it takes no more, and leaves
    assert connection.reusable
    connection.park()
    assert transport.calls == ["pause", "resume"]

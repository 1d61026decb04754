"""Does what a connection is poured into get all of it, as it comes and to the end?"""

import pytest

from gateway.errors import WorkerBroke
from tests.gateway.upstream.feeding import (
    END,
    HEAD,
    Basin,
    answering,
    asked,
    chunk,
    failure_of,
)

# What goes to the sink, and how


async def test_what_had_come_before_goes_to_the_sink_first() -> None:
    connection, _ = asked()
    connection.data_received(HEAD + chunk(b"a") + chunk(b"b"))
    basin = Basin()
    connection.pour(basin)
    assert basin.parts == [(b"ab", None)]
    assert connection.take() is None
    connection.data_received(chunk(b"c"))
    assert basin.parts[1:] == [(b"c", chunk(b"c"))]
    connection.connection_lost(None)


async def test_whole_chunks_go_with_their_frames_and_all_else_without() -> None:
    connection, _ = answering()
    basin = Basin()
    connection.pour(basin)
    several = chunk(b"b") + chunk(b"c")
    for piece in (
        chunk(b"a"),
        several,
        b"1;x\r\nd\r\n",
        b"2\r\ne",
        b"f\r\n",
        chunk(b"g"),
        chunk(b"h") + b"1",
    ):
        connection.data_received(piece)
    assert basin.parts == [
        (b"a", chunk(b"a")),
        (b"bc", several),
        (b"d", None),
        (b"e", None),
        (b"f", None),
        (b"g", chunk(b"g")),
        (b"h", None),
    ]
    connection.connection_lost(None)


async def test_a_body_without_chunks_pours_as_well() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    basin = Basin()
    connection.pour(basin)
    for piece in (b"1\r\n", b"a\r\n", b"end"):
        connection.data_received(piece)
    assert basin.parts == [(b"1\r\n", None), (b"a\r\n", None), (b"end", None)]
    assert connection.exhausted
    assert connection.reusable


async def test_an_answer_pours_the_same_cut_at_every_position() -> None:
    text = chunk(b"data: a\n\n") + chunk(b"1\r\na\r\n") + chunk(b"data: c\n\n") + END
    for at in range(1, len(text)):
        connection, _ = answering()
        basin = Basin()
        connection.pour(basin)
        connection.data_received(text[:at])
        connection.data_received(text[at:])
        assert (basin.body, connection.exhausted) == (b"data: a\n\n1\r\na\r\ndata: c\n\n", True)
        assert connection.reusable
        connection.connection_lost(None)


async def test_nobody_is_woken_by_what_goes_to_the_sink() -> None:
    connection, _ = answering()
    connection.pour(Basin())
    waiting = connection.arrival()
    for piece in (chunk(b"a"), chunk(b"b") + b"1;x\r\nc\r\n", chunk(b"d")):
        connection.data_received(piece)
        assert not waiting.done()
    connection.connection_lost(None)


# Enough


@pytest.mark.parametrize("piece", [chunk(b"end"), b"3;x\r\nend\r\n"], ids=["whole chunk", "parsed"])
async def test_a_sink_that_has_enough_gets_no_more_and_the_rest_is_kept(piece: bytes) -> None:
    connection, _ = answering()
    basin = Basin(enough=b"end")
    connection.pour(basin)
    waiting = connection.arrival()
    connection.data_received(chunk(b"a"))
    connection.data_received(piece)
    assert waiting.done()
    assert (basin.body, connection.sink) == (b"aend", None)
    assert connection.take() is None
    connection.data_received(chunk(b"b"))
    connection.data_received(chunk(b"c"))
    assert (basin.body, connection.take()) == (b"aend", b"bc")
    connection.data_received(END)
    assert (connection.take(), connection.reusable) == (b"", True)


async def test_a_sink_may_have_enough_with_what_had_come_before() -> None:
    connection, _ = asked()
    connection.data_received(HEAD + chunk(b"end"))
    basin = Basin(enough=b"end")
    connection.pour(basin)
    assert (basin.parts, connection.sink) == ([(b"end", None)], None)
    connection.data_received(chunk(b"b"))
    assert connection.take() == b"b"
    connection.connection_lost(None)


async def test_another_sink_goes_on_where_the_first_had_enough() -> None:
    connection, _ = answering()
    connection.pour(Basin(enough=b"end"))
    connection.data_received(chunk(b"end"))
    connection.data_received(chunk(b"b"))
    basin = Basin()
    connection.pour(basin)
    connection.data_received(chunk(b"c"))
    assert basin.parts == [(b"b", None), (b"c", chunk(b"c"))]
    connection.connection_lost(None)


# Ends


@pytest.mark.parametrize("apart", [True, False])
async def test_the_end_of_the_answer_wakes_the_one_who_waits(apart: bool) -> None:
    connection, _ = answering()
    basin = Basin()
    connection.pour(basin)
    waiting = connection.arrival()
    for piece in [chunk(b"a"), END] if apart else [chunk(b"a") + END]:
        assert not waiting.done()
        connection.data_received(piece)
    assert waiting.done()
    assert (basin.body, connection.exhausted, connection.take()) == (b"a", True, b"")


async def test_bytes_after_the_end_of_a_poured_answer_end_the_connection() -> None:
    connection, transport = answering()
    basin = Basin()
    connection.pour(basin)
    connection.data_received(END)
    connection.data_received(chunk(b"a"))
    assert (basin.parts, transport.aborted, connection.reusable) == ([], True, False)


async def test_a_broken_chunk_ends_the_connection_after_what_came_with_it() -> None:
    connection, transport = answering()
    basin = Basin()
    connection.pour(basin)
    waiting = connection.arrival()
    connection.data_received(chunk(b"a") + chunk(b"b") + b"no chunk\r\n")
    assert waiting.done()
    assert (basin.parts, transport.aborted) == ([(b"ab", None)], True)
    assert "broken answer" in (await failure_of(connection)).detail


async def test_a_broken_chunk_alone_brings_the_sink_nothing() -> None:
    connection, transport = answering()
    basin = Basin()
    connection.pour(basin)
    connection.data_received(b"no chunk\r\n")
    assert (basin.parts, transport.aborted) == ([], True)


async def test_a_sink_may_have_enough_with_what_came_before_a_broken_chunk() -> None:
    connection, _ = answering()
    connection.pour(Basin(enough=b"end"))
    connection.data_received(chunk(b"end") + b"no chunk\r\n")
    assert connection.sink is None
    with pytest.raises(WorkerBroke):
        connection.take()


@pytest.mark.parametrize("how", ["eof", "reset"])
async def test_a_connection_lost_while_it_pours_is_told_to_the_one_who_waits(how: str) -> None:
    connection, _ = answering()
    basin = Basin()
    connection.pour(basin)
    connection.data_received(chunk(b"a"))
    waiting = connection.arrival()
    if how == "eof":
        connection.eof_received()
    else:
        connection.connection_lost(ConnectionResetError("reset by peer"))
    assert waiting.done()
    assert basin.body == b"a"
    assert type(await failure_of(connection)) is WorkerBroke
    connection.connection_lost(None)


async def test_pouring_from_what_has_failed_is_the_failure() -> None:
    connection, _ = answering()
    connection.connection_lost(None)
    with pytest.raises(WorkerBroke):
        connection.pour(Basin())


async def test_a_body_until_the_end_of_the_connection_ends_with_it() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    basin = Basin()
    connection.pour(basin)
    connection.data_received(b"a")
    connection.eof_received()
    assert (basin.body, connection.exhausted, connection.reusable) == (b"a", True, False)
    connection.connection_lost(None)


async def test_a_connection_serves_again_after_a_poured_answer() -> None:
    connection, _ = answering()
    for answer in (b"a", b"b", b"c"):
        basin = Basin()
        connection.pour(basin)
        connection.data_received(chunk(answer))
        connection.data_received(END)
        assert basin.parts == [(answer, chunk(answer))]
        connection.sink = None  # as whoever poured leaves it
        assert connection.reusable
        connection.park()
        connection.send(b"HEAD", [], 0)
        connection.data_received(HEAD + chunk(b"first"))
        assert connection.take() == b"first"
    connection.connection_lost(None)

"""Is an upload that crawls told from one that is merely slow, and is it seen that a caller has hung up?"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from gateway.uploads import LEAST_BYTES_PER_S, Pace, has_left


def test_an_upload_is_late_when_nothing_has_come_for_longer_than_a_pause() -> None:
    pace = Pace(pause_s=30, now=100)
    assert pace.left_s(100) == 30
    pace.note(50 * LEAST_BYTES_PER_S, now=120)
    assert (pace.left_s(120), pace.left_s(149), pace.left_s(150)) == (30, 1, 0)


def test_an_upload_that_never_pauses_for_long_is_late_all_the_same_when_too_little_has_come() -> None:
    pace = Pace(pause_s=30, now=100)
    for second in range(1, 31):
        pace.note(1, now=100 + second)
    assert 0 < pace.left_s(130) < 0.1
    assert pace.left_s(131) < 0


@pytest.mark.parametrize("rate", [LEAST_BYTES_PER_S, 10 * LEAST_BYTES_PER_S])
def test_an_upload_that_comes_fast_enough_has_all_the_time_it_needs(rate: int) -> None:
    pace = Pace(pause_s=30, now=100)
    for second in range(1, 7200):
        pace.note(rate, now=100 + second)
        assert pace.left_s(100 + second) == 30


@pytest.fixture
async def line() -> AsyncIterator[tuple[asyncio.Transport, socket.socket]]:
    """A transport that does not read, and the socket at the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    transport.pause_reading()
    with theirs:
        yield transport, theirs
    transport.abort()


Line = tuple[asyncio.Transport, socket.socket]


async def test_who_says_something_is_still_there(line: Line) -> None:
    transport, other = line
    assert not has_left(transport)
    other.sendall(b"x" * 1000)
    assert not has_left(transport)


@pytest.mark.parametrize("said", [b"", b"x" * 1000])
async def test_who_has_hung_up_has_left_whatever_was_said_before(line: Line, said: bytes) -> None:
    transport, other = line
    other.sendall(said)
    other.close()
    assert has_left(transport)


async def test_who_has_reset_the_connection_has_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    transport.pause_reading()
    assert not has_left(transport)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    assert has_left(transport)
    transport.abort()

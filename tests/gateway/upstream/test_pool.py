"""Does the pool give back the latest connection, and close in time those that nobody wants?"""

import pytest

from gateway.upstream.connection import Connection, Timeouts
from gateway.upstream.pool import IdlePool
from tests.gateway.upstream.asking import until
from tests.gateway.upstream.transports import FakeTransport

BRIEF_S = 0.02


def made() -> tuple[Connection, FakeTransport]:
    connection = Connection("w:1", Timeouts(60, 60, 60), lambda _: None)
    transport = FakeTransport()
    connection.connection_made(transport)
    return connection, transport


def patient_pool() -> IdlePool:
    return IdlePool(idle_s=60, max_age_s=60)


async def test_the_latest_connection_comes_out_first() -> None:
    pool = patient_pool()
    connections = [made()[0] for _ in range(3)]
    for connection in connections:
        pool.put(connection)
    assert len(pool) == 3
    assert [pool.take() for _ in range(4)] == [*reversed(connections), None]
    pool.clear()


@pytest.mark.parametrize("clock", ["idle_since", "connected_at"])
async def test_a_connection_past_its_time_is_closed_instead_of_used(clock: str) -> None:
    pool = patient_pool()
    fresh, _ = made()
    old, transport = made()
    pool.put(fresh)
    pool.put(old)
    setattr(old, clock, getattr(old, clock) - 61)
    assert pool.take() is fresh
    assert transport.aborted
    pool.clear()


async def test_a_connection_about_to_close_is_not_used() -> None:
    pool = patient_pool()
    connection, transport = made()
    pool.put(connection)
    transport.closing = True
    assert pool.take() is None
    pool.clear()


@pytest.mark.parametrize("clock", ["idle_since", "connected_at"])
async def test_the_timer_closes_those_past_their_time_and_waits_for_the_rest(clock: str) -> None:
    limits = {"idle_since": (BRIEF_S, 60.0), "connected_at": (60.0, BRIEF_S)}
    pool = IdlePool(idle_s=limits[clock][0], max_age_s=limits[clock][1])
    first, first_transport = made()
    second, second_transport = made()
    pool.put(first)
    pool.put(second)
    setattr(second, clock, getattr(second, clock) + 30)
    await until(lambda: len(pool) == 1)
    assert (first_transport.aborted, second_transport.aborted) == (True, False)
    assert pool._timer_at == getattr(second, clock) + BRIEF_S
    pool.clear()


async def test_the_timer_stops_with_the_last_connection() -> None:
    pool = IdlePool(idle_s=BRIEF_S, max_age_s=60)
    connection, transport = made()
    pool.put(connection)
    await until(lambda: len(pool) == 0)
    assert transport.aborted
    assert pool._timer is None


async def test_one_timer_serves_all_and_is_moved_only_forward() -> None:
    pool = patient_pool()
    first, _ = made()
    pool.put(first)
    timer = pool._timer
    pool.put(made()[0])
    assert pool._timer is timer
    aged, _ = made()
    aged.connected_at -= 30
    pool.put(aged)
    assert pool._timer is not timer
    assert pool._timer_at == aged.connected_at + 60
    pool.clear()


async def test_a_lost_connection_is_forgotten() -> None:
    pool = patient_pool()
    kept, lost, stranger = made()[0], made()[0], made()[0]
    pool.put(kept)
    pool.put(lost)
    pool.discard(lost)
    pool.discard(stranger)
    assert (len(pool), pool.take()) == (1, kept)
    pool.clear()


async def test_a_cleared_pool_has_no_timer() -> None:
    pool = patient_pool()
    pool.put(made()[0])
    timer = pool._timer
    pool.clear()
    assert len(pool) == 0
    assert timer is not None
    assert timer.cancelled()

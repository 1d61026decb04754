"""Do writes leave together, in order, and not too late?"""

import asyncio
from typing import Any, cast

from gateway.outbox import MOST_BYTES, Outbox, write_now


class Transport:
    """Keeps what is written to it, and in which order among all."""

    def __init__(self, name: str, log: list[tuple[str, bytes]]) -> None:
        self.name = name
        self.log = log
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.log.append((self.name, data))

    def is_closing(self) -> bool:
        return self.closing


def transports(*names: str) -> tuple[list[tuple[str, bytes]], list[Any]]:
    log: list[tuple[str, bytes]] = []
    return log, [cast(asyncio.WriteTransport, Transport(name, log)) for name in names]


async def test_writes_wait_for_what_is_ready_and_leave_in_order() -> None:
    log, [one, two] = transports("one", "two")
    outbox = Outbox()
    outbox.write(one, b"a")
    asyncio.get_running_loop().call_soon(outbox.write, two, b"c")
    outbox.write(one, b"b")
    assert log == []
    await asyncio.sleep(0)
    assert log == [("one", b"a"), ("one", b"b")]
    await asyncio.sleep(0)
    assert log == [("one", b"a"), ("one", b"b"), ("two", b"c")]


async def test_a_flush_writes_at_once_and_only_once() -> None:
    log, [one] = transports("one")
    outbox = Outbox()
    outbox.write(one, b"a")
    outbox.flush()
    assert log == [("one", b"a")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log == [("one", b"a")]


async def test_much_is_not_put_off() -> None:
    log, [one] = transports("one")
    outbox = Outbox()
    outbox.write(one, b"x" * MOST_BYTES)
    assert log == []
    outbox.write(one, b"y")
    assert [data[:1] for _, data in log] == [b"x", b"y"]
    outbox.write(one, b"z")
    assert len(log) == 2  # counted anew


async def test_a_connection_that_has_ended_meanwhile_is_passed_over() -> None:
    log, [one, two] = transports("one", "two")
    outbox = Outbox()
    outbox.write(one, b"a")
    outbox.write(two, b"b")
    one.closing = True
    outbox.flush()
    assert log == [("two", b"b")]


async def test_without_an_outbox_a_write_is_a_write() -> None:
    log, [one] = transports("one")
    write_now(one, b"a")
    assert log == [("one", b"a")]

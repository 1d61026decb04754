"""Do connections go to the process with the least to do, and never wait for one that does not take them?"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop

from gateway import accepting
from gateway.accepting import AWAY, IDLE, LEAVING, SLACK, Acceptor, Loads, Place

NEVER_S = 3600.0
NEVER = 1_000_000_000  # looks
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close that tells the other side at once


class State:
    """What a server has to do."""

    def __init__(self) -> None:
        self.connections: list[object] = []
        self.tasks: list[object] = []


class Taken(asyncio.Protocol):
    """A connection that a process has accepted; it stays one that has asked for nothing."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._process.took(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._process.place.fresh -= 1
        self._process.lost.set()


class Poor(socket.socket):
    """Fails to accept at first."""

    def __init__(self, listener: socket.socket, codes: Sequence[int]) -> None:
        super().__init__(listener.family, listener.type, 0, listener.detach())
        self._codes = iter(codes)

    def accept(self) -> tuple[socket.socket, object]:
        for code in self._codes:
            raise OSError(code, os.strerror(code))
        return super().accept()


class Process:
    """One of several, all of which are here in one: its place, and what it has accepted."""

    def __init__(self, loads: Loads, number: int, listener: socket.socket) -> None:
        self.place = Place(loads, number)
        self.state = State()
        self.place.states.append(self.state)
        self.connections: list[asyncio.BaseTransport] = []
        self.came = asyncio.Event()
        self.lost = asyncio.Event()
        self.listener = listener.dup()  # as a child has it

    def begin(self) -> None:
        self.place.tell()
        self.acceptor = Acceptor(self.listener, lambda: Taken(self), self.place)

    def fails_first(self, *codes: int) -> None:
        """So does its socket."""
        self.listener = Poor(self.listener, codes)

    def took(self, transport: asyncio.BaseTransport) -> None:
        self.connections.append(transport)
        self.came.set()

    def does(self, requests: int) -> None:
        """It has so many under way."""
        self.state.tasks = [None] * requests
        self.place.tell()

    async def takes(self, count: int) -> None:
        """Wait until it has accepted so many in all."""
        while len(self.connections) < count:
            self.came.clear()
            await self.came.wait()


class Site:
    """Processes that listen on one socket, and callers."""

    def __init__(self, count: int, listener: socket.socket) -> None:
        self.loads = Loads(count)
        self.listener = listener
        self.processes = [Process(self.loads, number, listener) for number in range(count)]
        self.callers: list[socket.socket] = []

    def call(self, count: int = 1) -> None:
        """So many connect; the kernel lets them, whoever accepts."""
        for _ in range(count):
            self.callers.append(socket.create_connection(self.listener.getsockname()))


@asynccontextmanager
async def site(count: int) -> AsyncIterator[Site]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        here = Site(count, listener)
        try:
            yield here
        finally:
            for process in here.processes:
                if hasattr(process, "acceptor"):
                    process.acceptor.close()
                    await process.acceptor.wait_closed()
                process.listener.close()
                for connection in process.connections:
                    connection.close()
            for caller in here.callers:
                caller.close()
            await asyncio.sleep(0)  # the transports close in the next pass of the loop


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody loses patience, unless a test is about that."""
    monkeypatch.setattr(accepting, "GIVE_WAY_LOOKS", NEVER)
    monkeypatch.setattr(accepting, "LEAVE_LOOKS", NEVER)


# Loads


def test_who_has_not_begun_has_least_to_do_for_nobody() -> None:
    assert Loads(3).lighter(1e9) == {}


def test_a_request_more_than_another_has_is_no_reason_to_give_way() -> None:
    loads = Loads(3)
    loads.tell(0, 1.0)
    loads.tell(1, 0.5)
    assert loads.lighter(0.5 + SLACK) == {}
    assert loads.lighter(1.0 + SLACK).keys() == {1}
    assert loads.lighter(1.1 + SLACK).keys() == {0, 1}
    assert loads.lighter(AWAY).keys() == {0, 1}


def test_loads_are_seen_by_processes_that_are_forked_later() -> None:
    loads = Loads(2)
    ours, childs = os.pipe()
    if (pid := os.fork()) == 0:
        loads.tell(1, 7.0)
        os.write(childs, b".")
        os._exit(0)
    assert os.read(ours, 1) == b"."
    os.waitpid(pid, 0)
    os.close(ours)
    os.close(childs)
    assert loads.lighter(8.1).keys() == {1}


# A place


def test_idle_connections_weigh_less_than_requests_and_new_ones_as_much() -> None:
    place, state, admin = Place(Loads(1), 0), State(), State()
    place.states += [state, admin]
    assert place.load == 0
    place.fresh = 2  # not yet known to a server
    assert place.load == 2
    state.connections, admin.connections = [None] * 9, [None]
    assert place.load == 2 + 8 * IDLE
    state.tasks, place.fresh = [None] * 3, 0
    assert place.load == 3 + 7 * IDLE


def test_who_leaves_or_has_no_files_left_has_everybody_before_it() -> None:
    loads = Loads(2)
    loads.tell(1, 1e6)
    place = Place(loads, 0)
    assert place.before() == {}
    place.run_short(True)
    assert place.before().keys() == {1}
    place.run_short(False)
    assert place.before() == {}
    place.leave()
    assert place.before().keys() == {1}
    assert loads.lighter(LEAVING).keys() == {1}, "it has told"


def test_those_that_leave_together_go_by_what_they_have_to_do() -> None:
    loads = Loads(2)
    one, other = Place(loads, 0), Place(loads, 1)
    one.fresh = 5
    for place in (one, other):
        place.leave()
    assert one.before().keys() == {1}
    assert other.before() == {}


def test_it_is_known_who_accepts() -> None:
    loads = Loads(2)
    place = Place(loads, 0)
    seen = [loads.accepts(0)]
    for step in (place.tell, place.leave, place.close, place.tell):
        step()
        seen.append(loads.accepts(0))
    assert seen == [False, True, True, False, False]
    assert not loads.accepts(1)


def test_who_hangs_is_passed_over_until_it_stirs() -> None:
    loads = Loads(3)
    loads.tell(1, 0.0)
    loads.tell(2, 0.0)
    place = Place(loads, 0)
    place.fresh = 5
    asked = place.before()
    assert asked.keys() == {1, 2}
    loads.tell(2, 0.0)
    place.pass_over(asked)
    assert place.before().keys() == {2}
    loads.tell(1, 0.0)
    assert place.before().keys() == {1, 2}


# Who accepts


async def test_a_burst_is_spread_evenly() -> None:
    async with site(4) as here:
        here.call(64)
        for process in here.processes:
            process.begin()
        async with asyncio.timeout(30):
            while sum(len(process.connections) for process in here.processes) < 64:  # noqa: ASYNC110
                await asyncio.sleep(0)
        counts = [len(process.connections) for process in here.processes]
        assert max(counts) - min(counts) <= 2 * SLACK, counts


async def test_a_connection_goes_to_who_has_less_to_do() -> None:
    async with site(2) as here:
        busy, free = here.processes
        busy.does(10)
        busy.begin()
        free.begin()
        for number in range(1, 6):
            here.call()
            await free.takes(number)
        assert busy.connections == []


async def test_who_has_begun_late_is_given_what_comes() -> None:
    async with site(2) as here:
        old, new = here.processes
        old.begin()
        here.call(5)
        await old.takes(5)
        new.begin()
        here.call(3)
        await new.takes(3)
        assert len(old.connections) == 5


async def test_who_gave_way_takes_what_waits_as_soon_as_it_has_less_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepting, "LOOK_AGAIN_S", NEVER_S)
    async with site(2) as here:
        one, other = here.processes
        other.place.tell()  # and accepts nothing
        one.does(10)
        one.begin()
        here.call()
        await until(lambda: bool(one.acceptor._asked))
        one.does(0)
        await one.takes(1)


async def test_who_gave_way_goes_on_once_another_has_taken_it() -> None:
    async with site(2) as here:
        one, other = here.processes
        one.does(10)
        one.begin()
        other.begin()
        here.call()
        await other.takes(1)
        await until(lambda: not one.acceptor._asked)
        other.does(20)
        here.call()
        await one.takes(1)


async def until(there: Callable[[], bool]) -> None:
    while not there():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)


# Siblings that do not accept


async def test_nothing_waits_long_for_a_process_that_hangs_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(2) as here:
        one, hangs = here.processes
        hangs.place.tell()
        one.does(10)
        one.begin()
        monkeypatch.setattr(accepting, "GIVE_WAY_LOOKS", 1)
        here.call()
        await one.takes(1)
        monkeypatch.setattr(accepting, "GIVE_WAY_LOOKS", NEVER)
        here.call(5)
        await one.takes(6)


async def test_a_process_that_stirs_but_takes_nothing_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepting, "GIVE_WAY_LOOKS", 1)
    async with site(2) as here:
        one, stirs = here.processes
        one.does(10)
        one.begin()
        for number in range(1, 4):
            stirs.place.tell()
            here.call()
            await one.takes(number)


async def test_nothing_waits_for_a_process_that_is_gone() -> None:
    async with site(2) as here:
        one, gone = here.processes
        gone.place.tell()
        here.loads.tell(1, AWAY)  # by the parent
        one.does(10)
        one.begin()
        here.call()
        await one.takes(1)


async def test_what_waits_outlives_a_process_that_stops_accepting() -> None:
    async with site(2) as here:
        one, other = here.processes
        one.begin()
        one.acceptor.close()
        here.call(3)
        other.begin()
        await other.takes(3)
        assert one.connections == []


# Draining


async def test_a_process_that_drains_leaves_all_to_the_others() -> None:
    async with site(2) as here:
        drains, other = here.processes
        drains.begin()
        other.does(1000)
        other.begin()
        drains.place.leave()
        here.call(20)
        await other.takes(20)
        assert drains.connections == []


async def test_when_all_drain_a_burst_is_spread_evenly_still() -> None:
    async with site(4) as here:
        here.call(64)
        for process in here.processes:
            process.begin()
            process.place.leave()
        async with asyncio.timeout(30):
            while sum(len(process.connections) for process in here.processes) < 64:  # noqa: ASYNC110
                await asyncio.sleep(0)
        counts = [len(process.connections) for process in here.processes]
        assert max(counts) - min(counts) <= 2 * SLACK, counts


async def test_when_all_drain_they_accept_to_refuse() -> None:
    async with site(2) as here:
        for process in here.processes:
            process.begin()
            process.place.leave()
        here.call()
        await until(lambda: any(process.connections for process in here.processes))


async def test_a_process_that_drains_takes_what_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "LEAVE_LOOKS", 1)
    async with site(2) as here:
        drains, hangs = here.processes
        hangs.place.tell()
        drains.begin()
        drains.place.leave()
        here.call()
        await drains.takes(1)


async def test_a_process_that_drains_asks_again_whoever_stirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(2) as here:
        drains, stirs = here.processes
        stirs.place.tell()
        monkeypatch.setattr(accepting, "LEAVE_LOOKS", 1)
        monkeypatch.setattr(accepting, "LOOK_AGAIN_S", NEVER_S)
        drains.begin()
        drains.place.leave()
        here.call()
        await until(lambda: bool(drains.acceptor._asked))
        asked = drains.acceptor._asked
        stirs.place.tell()
        drains.acceptor._look_again()
        assert drains.connections == []
        assert drains.acceptor._asked != asked


# Faults


async def test_without_files_to_spare_a_process_rests_and_leaves_all_to_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "RETRY_S", NEVER_S)
    async with site(2) as here:
        one, other = here.processes
        one.fails_first(errno.EMFILE)
        one.begin()
        here.call(3)
        await until(lambda: one.place.is_away)
        assert caplog.messages == [
            "cannot accept connections: Too many open files; the next try is in 3600 s"
        ]
        other.does(1000)
        other.begin()
        await other.takes(3)


async def test_a_process_tries_again_when_files_may_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "RETRY_S", 0.0)
    async with site(1) as here:
        [one] = here.processes
        one.fails_first(errno.EMFILE, errno.ENFILE)
        one.begin()
        here.call()
        await one.takes(1)
        assert not one.place.is_away


async def test_another_error_is_not_hidden() -> None:
    async with site(1) as here:
        [one] = here.processes
        one.fails_first(errno.EBADF)
        one.begin()
        with pytest.raises(OSError, match="Bad file descriptor"):
            one.acceptor._accept()


@pytest.mark.parametrize("code", [errno.ECONNABORTED, errno.EAGAIN])
async def test_a_caller_who_has_left_or_met_a_sibling_is_no_error(code: int) -> None:
    async with site(1) as here:
        [one] = here.processes
        one.fails_first(code)
        one.begin()
        here.call()
        await one.takes(1)


async def test_a_caller_who_leaves_before_it_is_accepted_is_not_counted_for_good() -> None:
    async with site(1) as here:
        [one] = here.processes
        here.call()
        here.callers[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        here.callers[0].close()
        one.begin()
        await until(lambda: one.lost.is_set())
        here.call()
        await one.takes(2)
        assert one.place.fresh == 1


async def test_a_connection_that_cannot_be_served_is_closed_and_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object) -> None:
        raise OSError(errno.ENOTCONN, "left")

    async with site(1) as here:
        [one] = here.processes
        monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fails)
        one.begin()
        here.call()
        assert await asyncio.to_thread(here.callers[0].recv, 1) == b""
        assert one.place.fresh == 0


def test_what_is_written_goes_out_at_once() -> None:
    """As on connections that the loop itself accepts: small writes wait for no answer (TCP_NODELAY)."""

    async def accepted() -> int:
        async with site(1) as here:
            [one] = here.processes
            one.begin()
            here.call()
            await one.takes(1)
            found: socket.socket = one.connections[0].get_extra_info("socket")
            return found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert uvloop.run(accepted()) != 0

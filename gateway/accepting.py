"""Which of several processes accepts a connection that waits? The one that has the least to do.

They listen on one socket, so that a connection is nobody's until it is accepted, and outlives whoever dies
before. Left to themselves, those that wake first accept all that wait; streams last, and so would that
imbalance. Here a process that has more to do than another leaves what waits to that one. It does so for a
moment only: longer than a busy process takes to come to it, and too short to matter if that one hangs.
"""

import asyncio
import errno
import logging
import mmap
import select
import socket
from collections.abc import Callable, Sized
from typing import Protocol

log = logging.getLogger(__name__)

AWAY = float("inf")  # the load of a process that accepts nothing: not begun, ended, out of files
LEAVING = 1e9  # comes on top while a process drains: above any load, so that it is left to those who stay
IDLE = 0.0625  # an idle connection's part in a load, a request's being 1: few are used again at once
SLACK = 1.0  # requests more than another, which are no reason to give way: it would cost more than it mends
LOOK_AGAIN_S = 0.002  # loops round to milliseconds
GIVE_WAY_LOOKS = 25  # 50 ms: so long do large bodies keep a loop busy. Short of processor: longer
LEAVE_LOOKS = 500  # a process that drains has longer, as it can but refuse what it accepts
RETRY_S = 1.0  # without a file descriptor to spare
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Beats = dict[int, float]  # by the numbers of processes: how often each has told its load


class Loads:
    """What each process has to do, in memory that all see. Make it before they are forked."""

    def __init__(self, count: int) -> None:
        cells = memoryview(mmap.mmap(-1, 2 * 8 * count)).cast("d")
        self._loads, self._beats = cells[:count], cells[count:]
        for number in range(count):
            self.tell(number, AWAY)

    def tell(self, number: int, load: float) -> None:
        self._loads[number] = load
        self._beats[number] += 1

    def accepts(self, number: int) -> bool:
        """Whether a process accepts connections."""
        return self._loads[number] < AWAY

    def lighter(self, load: float) -> Beats:
        """Who has less to do."""
        if min(self._loads) + SLACK >= load:  # mostly
            return {}
        beats = self._beats.tolist()
        return {number: beats[number] for number, its in enumerate(self._loads) if its + SLACK < load}


class State(Protocol):
    """What a server has to do: uvicorn's ServerState."""

    @property
    def connections(self) -> Sized: ...

    @property
    def tasks(self) -> Sized: ...  # one for each request


class Place:
    """One process among its siblings: what it has to do, and who comes before it."""

    def __init__(self, loads: Loads, number: int) -> None:
        self.states: list[State] = []  # of its servers
        self.fresh = 0  # connections that have not asked for anything yet
        self.on_lighter: set[Callable[[], None]] = set()
        self._loads = loads
        self._number = number
        self._told = AWAY
        self._is_leaving = self._is_short = self._is_closed = False
        self._passed_over: Beats = {}

    @property
    def load(self) -> float:
        """In requests: those under way, and those to come."""
        if self._is_short or self._is_closed:
            return AWAY
        busy = connections = 0
        for state in self.states:
            busy += len(state.tasks)
            connections += len(state.connections)
        busy += self.fresh
        return LEAVING * self._is_leaving + busy + IDLE * max(connections - busy, 0)

    @property
    def patience(self) -> int:
        """How many looks later it has given way for long enough."""
        return LEAVE_LOOKS if self._is_leaving else GIVE_WAY_LOOKS

    @property
    def is_away(self) -> bool:
        return self._is_leaving or self._is_short

    def tell(self) -> None:
        load = self.load
        self._loads.tell(self._number, load)
        fell, self._told = load < self._told, load
        if fell:
            for look in self.on_lighter:
                look()

    def leave(self) -> None:
        """From now on everything is left to those siblings that stay, as long as any of them stirs."""
        self._is_leaving = True
        self.tell()

    def close(self) -> None:
        """Nothing more is accepted."""
        self._is_closed = True
        self.tell()

    def run_short(self, is_short: bool) -> None:
        """Whether there is nothing left to accept connections with."""
        self._is_short = is_short
        self.tell()

    def before(self) -> Beats:
        """Which siblings come before this one."""
        lighter = self._loads.lighter(self.load)
        return {number: beat for number, beat in lighter.items() if self._passed_over.get(number) != beat}

    def pass_over(self, asked: Beats) -> None:
        """Those that have not stirred since then hang. Until they stir, nothing is left to them."""
        self._passed_over |= asked


class Acceptor:
    """Accepts what waits at a socket, for one process of several. Stands for an `asyncio.Server`."""

    def __init__(
        self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], place: Place
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Beats = {}  # to whom it gives way
        self._looks_left = 0
        self._waiting = select.poll()
        self._waiting.register(listener, select.POLLIN)
        listener.setblocking(False)
        place.on_lighter.add(self._hurry)
        self._listen()

    def close(self) -> None:
        self._place.close()
        self._place.on_lighter.discard(self._hurry)
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()

    async def wait_closed(self) -> None:
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _listen(self) -> None:
        self._asked = {}
        self._loop.add_reader(self._listener, self._come)

    def _come(self) -> None:
        """A connection waits, or has waited: all processes are woken for it."""
        if not self._waiting.poll(0):  # a tenth of what it costs to be refused
            return
        if before := self._place.before():
            self._loop.remove_reader(self._listener)
            self._give_way(before)
        else:
            self._accept()

    def _give_way(self, asked: Beats) -> None:
        self._asked = asked
        self._looks_left = self._place.patience
        self._timer = self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _hurry(self) -> None:
        """This process has less to do than before."""
        if self._asked and self._timer and not self._place.before():
            self._timer.cancel()
            self._look_again()

    def _look_again(self) -> None:
        if not self._waiting.poll(0):
            self._listen()
            return
        self._looks_left -= 1
        if is_late := self._looks_left <= 0:
            self._place.pass_over(self._asked)
        before = self._place.before()
        if not before or (is_late and not self._place.is_away):
            self._listen()
            self._accept()
        elif is_late:
            self._give_way(before)
        else:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _accept(self) -> None:
        """One, and more while nobody has less to do."""
        while self._accept_one() and not self._place.before() and self._waiting.poll(0):
            pass

    def _accept_one(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False  # a sibling was faster, or the caller has left
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            self._rest(error)
            return False
        connection.setblocking(False)
        self._place.fresh += 1
        self._place.tell()
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True

    def _rest(self, error: OSError) -> None:
        log.error("cannot accept connections: %s; the next try is in %g s", error.strerror, RETRY_S)
        self._loop.remove_reader(self._listener)
        self._place.run_short(True)
        self._timer = self._loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._place.run_short(False)
        self._listen()

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # the caller has left
            self._place.fresh -= 1
            connection.close()

"""What is a process told by signals, and what does it do then?"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from gateway.forks import RETIRE, ROLL

log = logging.getLogger(__name__)


class _Told:
    """What a process was told so far. is_alone: and not one of several."""

    def __init__(self, is_alone: bool) -> None:
        self.anything = asyncio.Event()
        self.stop = asyncio.Event()
        self.is_settled = asyncio.Event()  # as far as who tells it knows
        self.hurry = asyncio.Event()
        self._is_alone = is_alone

    def to_stop(self) -> None:
        if self.stop.is_set() and self._is_alone:
            self.to_hurry()
        self.stop.set()
        self.anything.set()

    def to_stop_by_hand(self) -> None:
        self.to_stop()
        self.is_settled.set()

    def to_hurry(self) -> None:
        for event in (self.anything, self.stop, self.is_settled, self.hurry):
            event.set()


async def until_told_to_stop(
    drain: Callable[[asyncio.Event], Awaitable[None]],
    *,
    settle: Callable[[asyncio.Event], Awaitable[None]] | None = None,
    retire: Callable[[], Awaitable[None]] | None = None,
    on_hangup: Callable[[], None] | None = None,
    lifeline: int | None = None,
) -> None:
    """Wait for SIGTERM or SIGINT, then drain. The event that `drain` is given is set by a second signal.

    settle: goes before a drain until the event that it is given is set, which a second signal does, and
    SIGINT: who interrupts by hand waits for no balancer.
    retire: what is done at RETIRE, instead of a drain unless that is asked for before it has ended.
    on_hangup: is called at each SIGHUP.
    lifeline: of one of several processes (`forks.Seat`). Its end is a signal too, and SIGQUIT is the second
    one: terminals and init systems tell all processes of a group, and the parent tells them again.
    """
    told = _Told(is_alone=lifeline is None)
    reactions: dict[int, Callable[[], None]] = {
        signal.SIGTERM: told.to_stop,
        signal.SIGINT: told.to_stop_by_hand,
    }
    if on_hangup is not None:
        reactions[signal.SIGHUP] = on_hangup
    with ExitStack() as stack:
        if lifeline is None:
            reactions[ROLL] = _refuse_to_roll
        else:
            reactions[signal.SIGQUIT] = told.to_hurry
            if retire is not None:
                reactions[RETIRE] = told.anything.set
            stack.enter_context(_watched(lifeline, told.to_stop))
        stack.enter_context(_heeded(reactions, to_the_end=lifeline is not None))
        await told.anything.wait()
        if retire is not None and not told.stop.is_set() and await _ends_before(retire, told.stop):
            return
        if settle is not None and not told.is_settled.is_set():
            await settle(told.is_settled)
        await drain(told.hurry)


def _refuse_to_roll() -> None:
    log.warning(
        "%s does nothing where server.processes = 1: there is nobody to take over. Set it to 2 or more",
        ROLL.name,
    )


async def _ends_before(work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
    """Do it until it is done, or until the event is set."""
    doing, stopping = asyncio.ensure_future(work()), asyncio.ensure_future(stop.wait())
    done, left = await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
        await asyncio.wait((task,))
    if doing not in done:
        return False
    await doing  # raises what it failed by
    return True


@contextmanager
def _heeded(reactions: Mapping[int, Callable[[], None]], to_the_end: bool) -> Iterator[None]:
    """React to signals, also to those that were blocked until now.

    to_the_end: nothing but the end of the process follows, and no late signal shall cut it short.
    """
    loop = asyncio.get_running_loop()
    for number, reaction in reactions.items():
        loop.add_signal_handler(number, reaction)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, reactions)
    try:
        yield
    finally:
        for number in () if to_the_end else reactions:
            loop.remove_signal_handler(number)


@contextmanager
def _watched(lifeline: int, on_end: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(lifeline)
        log.warning("the parent process is gone: this one stops")
        on_end()

    loop.add_reader(lifeline, ended)
    try:
        yield
    finally:
        loop.remove_reader(lifeline)

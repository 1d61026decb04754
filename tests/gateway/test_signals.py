"""Do signals begin what they should, and nothing else?"""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from gateway.signals import until_told_to_stop

TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_begins_the_drain_and_a_second_one_hurries_it(number: signal.Signals) -> None:
    began = asyncio.Event()

    async def drain(hurry: asyncio.Event) -> None:
        assert not hurry.is_set()
        began.set()
        await hurry.wait()

    stopping = asyncio.create_task(until_told_to_stop(drain))
    await asyncio.sleep(0)  # from here on, signals are handled
    os.kill(os.getpid(), number)
    await began.wait()
    assert not stopping.done()
    os.kill(os.getpid(), number)
    await stopping


async def test_a_drain_that_ends_by_itself_needs_no_second_signal_and_gives_the_signals_back() -> None:
    async def drain(hurry: asyncio.Event) -> None:
        return None

    stopping = asyncio.create_task(until_told_to_stop(drain))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


async def test_a_hangup_calls_what_it_should_and_stops_nothing() -> None:
    heard, stop = asyncio.Event(), asyncio.Event()

    async def drain(hurry: asyncio.Event) -> None:
        stop.set()

    stopping = asyncio.create_task(until_told_to_stop(drain, on_hangup=heard.set))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGHUP)
    await heard.wait()
    assert not stop.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


class Drain:
    """A drain that lasts until it is hurried."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.hurry = asyncio.Event()

    async def __call__(self, hurry: asyncio.Event) -> None:
        self.hurry = hurry
        self.began.set()
        await hurry.wait()


class Settling:
    """What goes before a drain; lasts until it is enough."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def __call__(self, enough: asyncio.Event) -> None:
        self.began.set()
        await enough.wait()


async def test_before_a_drain_things_settle_and_a_second_signal_ends_both() -> None:
    settle, drain = Settling(), Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, settle=settle))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await settle.began.wait()
    await until_signals_were_heard()
    assert not drain.began.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping
    assert drain.began.is_set()


async def test_who_interrupts_by_hand_does_not_wait_for_things_to_settle() -> None:
    settle, drain = Settling(), Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, settle=settle))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)
    await drain.began.wait()
    assert (settle.began.is_set(), drain.hurry.is_set()) == (False, False)
    os.kill(os.getpid(), signal.SIGINT)
    await stopping


async def test_one_process_alone_is_not_replaced_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGUSR2)
    await until_signals_were_heard()
    assert not drain.began.is_set()
    assert caplog.messages == [
        "SIGUSR2 does nothing where server.processes = 1: there is nobody to take over. Set it to 2 or more"
    ]
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        await drain.began.wait()
    await stopping


# Signals of one among several processes


@pytest.fixture
def blocked() -> Iterator[None]:
    """Signals to this thread are blocked, as a parent leaves them. Those to the process may meet another."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture
def lifeline(blocked: None) -> Iterator[tuple[int, int]]:
    """The end that a process watches, and the one that its parent holds."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


async def until_signals_were_heard() -> None:
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, heard.set)
    signal.raise_signal(signal.SIGWINCH)  # it comes after those that were sent before
    await heard.wait()
    loop.remove_signal_handler(signal.SIGWINCH)


async def test_a_signal_that_was_blocked_before_is_heard(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGTERM)
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=lifeline[0]))
    await drain.began.wait()
    drain.hurry.set()
    await stopping


async def test_only_the_parents_word_hurries_a_process(lifeline: tuple[int, int]) -> None:
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=lifeline[0]))
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(number)
        await drain.began.wait()
        await until_signals_were_heard()
    assert not drain.hurry.is_set()
    signal.raise_signal(signal.SIGQUIT)
    await stopping


async def test_a_process_may_be_hurried_from_the_start(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGQUIT)
    drain = Drain()
    await until_told_to_stop(drain, lifeline=lifeline[0])
    assert drain.began.is_set()


async def test_a_process_drains_when_its_parent_is_gone(
    blocked: None, caplog: pytest.LogCaptureFixture
) -> None:
    ours, parents = os.pipe()
    drain = Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, lifeline=ours))
    await until_signals_were_heard()
    assert not drain.began.is_set()
    os.close(parents)
    await drain.began.wait()
    assert caplog.messages == ["the parent process is gone: this one stops"]
    drain.hurry.set()
    await stopping
    os.close(ours)


async def test_late_signals_do_not_cut_short_the_end_of_a_process(lifeline: tuple[int, int]) -> None:
    signal.raise_signal(signal.SIGQUIT)
    await until_told_to_stop(Drain(), lifeline=lifeline[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.raise_signal(number)  # would end this test, and all others
    await until_signals_were_heard()


async def test_by_hand_no_process_waits_for_things_to_settle(lifeline: tuple[int, int]) -> None:
    settle, drain = Settling(), Drain()
    stopping = asyncio.create_task(until_told_to_stop(drain, settle=settle, lifeline=lifeline[0]))
    signal.raise_signal(signal.SIGTERM)
    await settle.began.wait()
    signal.raise_signal(signal.SIGINT)
    await drain.began.wait()
    assert not drain.hurry.is_set()
    signal.raise_signal(signal.SIGQUIT)
    await stopping


# Making way


class Retiring:
    """Lasts until a test ends it."""

    def __init__(self) -> None:
        self.began, self.end = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self) -> None:
        self.began.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_a_process_whose_successor_serves_makes_way_without_a_drain(lifeline: tuple[int, int]) -> None:
    drain, retire = Drain(), Retiring()
    stopping = asyncio.create_task(until_told_to_stop(drain, retire=retire, lifeline=lifeline[0]))
    signal.raise_signal(signal.SIGUSR1)
    await retire.began.wait()
    retire.end.set()
    await stopping
    assert not drain.began.is_set()


async def test_a_process_that_makes_way_drains_once_all_are_told_to_stop(lifeline: tuple[int, int]) -> None:
    drain, retire = Drain(), Retiring()
    stopping = asyncio.create_task(until_told_to_stop(drain, retire=retire, lifeline=lifeline[0]))
    signal.raise_signal(signal.SIGUSR1)
    await retire.began.wait()
    signal.raise_signal(signal.SIGTERM)
    await drain.began.wait()
    assert retire.was_cancelled
    signal.raise_signal(signal.SIGQUIT)
    await stopping


async def test_a_process_that_is_told_to_stop_makes_no_way_any_more(lifeline: tuple[int, int]) -> None:
    drain, retire = Drain(), Retiring()
    stopping = asyncio.create_task(until_told_to_stop(drain, retire=retire, lifeline=lifeline[0]))
    signal.raise_signal(signal.SIGTERM)
    await drain.began.wait()
    signal.raise_signal(signal.SIGUSR1)
    await until_signals_were_heard()
    assert not retire.began.is_set()
    signal.raise_signal(signal.SIGQUIT)
    await stopping


async def test_what_fails_while_a_process_makes_way_is_told(lifeline: tuple[int, int]) -> None:
    async def failing() -> None:
        raise ZeroDivisionError("the bug of this test")

    signal.raise_signal(signal.SIGUSR1)
    with pytest.raises(ZeroDivisionError):
        await until_told_to_stop(Drain(), retire=failing, lifeline=lifeline[0])


async def test_the_word_for_the_parent_means_nothing_to_a_process(lifeline: tuple[int, int]) -> None:
    drain, retire = Drain(), Retiring()
    stopping = asyncio.create_task(until_told_to_stop(drain, retire=retire, lifeline=lifeline[0]))
    signal.raise_signal(signal.SIGUSR2)  # it stays blocked
    await until_signals_were_heard()
    assert (drain.began.is_set(), retire.began.is_set()) == (False, False)
    signal.raise_signal(signal.SIGQUIT)
    await stopping
    assert signal.sigpending() == {signal.SIGUSR2}
    signal.sigwait({signal.SIGUSR2})

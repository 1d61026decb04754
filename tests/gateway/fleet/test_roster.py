"""Do workers drain and resume in all processes, and does a fleet keep up with what was said elsewhere?"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import pytest

from gateway import settings
from gateway.errors import NotFound, StoreUnavailable
from gateway.fleet import Fleet, LocalSwitch, Member, Roster, roster


class FakeSwitch(LocalSwitch):
    """A switch that a test can hold back, or that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.held: asyncio.Event | None = None  # the next answer, as it is now, comes once this is set
        self.is_away = False

    async def draining(self) -> frozenset[str]:
        self.looks += 1
        answer = await super().draining()
        held, self.held = self.held, None
        if held:
            await held.wait()
        if self.is_away:
            raise StoreUnavailable("Later.", retry_after_s=1, detail="refused")
        return answer


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_met():  # noqa: ASYNC110 - a roster tells nobody when it has looked
            await asyncio.sleep(0)


def a_fleet() -> Fleet:
    return Fleet(settings.Fleet(), [Member("w0", "small", 4, up=True), Member("w1", "small", 4, up=True)])


def draining(fleet: Fleet) -> list[str]:
    return [member.id for member in fleet.members.values() if member.draining]


async def test_who_drains_here_drains_wherever_the_switch_is_read() -> None:
    switch, here, there = LocalSwitch(), a_fleet(), a_fleet()
    other = Roster(there, switch)
    member = await Roster(here, switch).drain("w0")
    assert (member.id, draining(here), draining(there)) == ("w0", ["w0"], [])
    await other.look()
    assert draining(there) == ["w0"]
    member = await other.resume("w0")
    assert (member.id, draining(here), draining(there)) == ("w0", ["w0"], [])


@pytest.mark.parametrize("act", [Roster.drain, Roster.resume])
async def test_an_unknown_worker_is_not_found_and_nothing_is_kept_of_it(
    act: Callable[[Roster, str], Coroutine[None, None, Member]],
) -> None:
    switch = LocalSwitch()
    with pytest.raises(NotFound) as caught:
        await act(Roster(a_fleet(), switch), "w9")
    assert caught.value.code == "worker_not_found"
    assert await switch.draining() == frozenset()


async def test_what_others_changed_is_followed_once_it_is_noticed() -> None:
    switch, fleet = FakeSwitch(), a_fleet()
    await switch.drain("w1")
    async with Roster(fleet, switch) as following:
        await until(lambda: draining(fleet) == ["w1"])
        await switch.drain("w0")
        following.notice()
        await until(lambda: draining(fleet) == ["w0", "w1"])
    assert switch.looks == 2


async def test_an_answer_that_was_overtaken_does_not_undo_the_later_one() -> None:
    switch, fleet = FakeSwitch(), a_fleet()
    following = Roster(fleet, switch)
    switch.held = held = asyncio.Event()
    early = asyncio.create_task(following.look())
    await until(lambda: switch.held is None)
    await switch.drain("w0")
    late = asyncio.create_task(following.look())
    for _ in range(5):
        await asyncio.sleep(0)  # in which the later one could overtake
    held.set()
    await asyncio.gather(early, late)
    assert draining(fleet) == ["w0"]


async def test_while_the_switch_is_away_all_stays_as_it_is_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "RETRY_S", 0.001)
    switch, fleet = FakeSwitch(), a_fleet()
    fleet.drain(["w0"])
    switch.is_away = True
    async with Roster(fleet, switch) as following:
        await until(lambda: switch.looks == 5)
        assert draining(fleet) == ["w0"]
        await switch.drain("w1")
        switch.is_away = False
        await until(lambda: draining(fleet) == ["w1"])
        assert warnings(caplog) == ["which workers drain cannot be read, so it stays as it is: refused"]
        switch.is_away = True
        following.notice()
        await until(lambda: len(warnings(caplog)) == 2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_switch_that_is_away_refuses_whoever_drains() -> None:
    switch, fleet = FakeSwitch(), a_fleet()
    switch.is_away = True
    with pytest.raises(StoreUnavailable):
        await Roster(fleet, switch).drain("w0")
    assert draining(fleet) == []


async def test_a_cancellation_that_is_lost_holds_up_no_end() -> None:
    class Deaf(LocalSwitch):
        """Loses the first cancellation, as redis-py can where a connection breaks at that moment."""

        asked = False

        async def draining(self) -> frozenset[str]:
            if not self.asked:
                self.asked = True
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            return await super().draining()

    switch = Deaf()
    async with asyncio.timeout(5) as guard, Roster(a_fleet(), switch):
        await until(lambda: switch.asked)
    assert not guard.expired()

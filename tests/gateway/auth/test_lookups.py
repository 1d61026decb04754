"""Is the directory asked as seldom as it may be, and believed for no longer than it may be?"""

import asyncio

import pytest

from gateway.auth.cache import CACHE_S, NOBODY, REFRESH_S, RETRY_S, STALE_S
from gateway.auth.directory import Found
from gateway.auth.gate import MAX_LOOKUPS
from gateway.auth.lookups import Lookups
from gateway.errors import StoreUnavailable
from gateway.model import Caller, Tenant
from tests.gateway.auth.directories import REMOTE, SECRET, Clock, FakeDirectory, Key, digest, quiet

KEY, NO = digest(SECRET), digest("no")


class Room:
    """Lookups, their directory with one key, and their clock."""

    def __init__(self) -> None:
        self.clock = Clock(1000.0)
        self.directory = FakeDirectory({SECRET: REMOTE})
        self.lookups = Lookups(self.directory, self.caller_of, self.clock)
        self.limit = 1

    def caller_of(self, found: Found) -> Caller | None:
        if found.tenant_id == "nowhere":
            return None
        return Caller(Tenant(found.tenant_id, max_concurrency=self.limit), found.key_id, "salt")

    async def warmed(self) -> "Room":
        """Once the key has been asked for and may be served from what is known."""
        await self.find()
        await self.directory.asked()
        return self

    async def find(self, digest: bytes = KEY) -> str:
        """The id of the key that is found, or ""."""
        caller = (await self.lookups.find(digest)).caller
        return caller.key_id if caller else ""

    def known(self, digest: bytes = KEY) -> str | None:
        """The same without waiting; None if that cannot be told."""
        entry = self.lookups.known(digest)
        return None if entry is None else entry.caller.key_id if entry.caller else ""


async def test_a_key_that_was_found_is_known() -> None:
    room = Room()
    assert room.known() is None
    assert await room.find() == "acme-r"
    assert room.known() == "acme-r"
    assert await room.find() == "acme-r"
    assert room.directory.calls == 1


async def test_a_key_that_was_not_found_is_known_to_be_nobody_s_for_ten_seconds() -> None:
    room = Room()
    assert await room.find(NO) == ""
    room.clock.now_s += CACHE_S - 0.1
    assert room.lookups.known(NO) is NOBODY
    assert await room.find(NO) == ""
    assert room.directory.calls == 1
    room.clock.now_s += 0.1
    assert room.known(NO) is None


async def test_a_key_of_a_tenant_that_does_not_exist_is_nobody_s() -> None:
    room = Room()
    room.directory.keys["stray"] = Key("stray", "nowhere")
    assert await room.find(digest("stray")) == ""
    assert room.lookups.known(digest("stray")) is NOBODY


async def test_a_hot_key_is_asked_for_in_the_background_before_it_is_stale() -> None:
    room = await Room().warmed()
    room.clock.now_s += REFRESH_S - 0.1
    assert room.known() == "acme-r"
    assert room.directory.calls == 1
    room.clock.now_s += 0.1
    room.directory.hold()
    assert [room.known(), room.known()] == ["acme-r"] * 2
    await room.directory.asked()
    assert room.known() == "acme-r"  # while it is asked
    room.directory.let()
    await quiet()
    room.clock.now_s += CACHE_S - 0.1
    assert room.known() == "acme-r"
    await quiet()
    assert room.directory.calls == 3


async def test_an_entry_of_ten_seconds_is_not_served_while_the_directory_answers() -> None:
    room = await Room().warmed()
    room.directory.keys.clear()
    room.clock.now_s += CACHE_S
    assert room.known() is None
    assert await room.find() == ""
    assert room.known() == ""


async def test_a_slow_answer_counts_from_when_it_was_asked_for() -> None:
    room = Room()
    room.directory.hold()
    finding = asyncio.create_task(room.find())
    await room.directory.asked()
    room.clock.now_s += CACHE_S
    room.directory.let()
    assert await finding == "acme-r"
    assert room.known() is None


async def test_a_revoked_hot_key_is_out_once_the_background_look_has_told() -> None:
    room = await Room().warmed()
    room.directory.keys.clear()
    room.clock.now_s += REFRESH_S
    assert room.known() == "acme-r"
    await quiet()
    assert room.known() == ""


async def test_guesses_do_not_keep_a_known_key_from_being_asked_for() -> None:
    room = await Room().warmed()
    room.directory.hold()
    guesses = [asyncio.create_task(room.find(digest(f"no-{i}"))) for i in range(MAX_LOOKUPS)]
    await room.directory.asked(MAX_LOOKUPS)
    room.clock.now_s += CACHE_S
    finding = asyncio.create_task(room.find())
    await room.directory.asked()
    room.directory.let()
    assert await finding == "acme-r"
    assert await asyncio.gather(*guesses) == [""] * MAX_LOOKUPS


async def test_a_bug_in_the_directory_spoils_one_look_only(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    room.directory.bug = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        await room.find()
    assert len(caplog.records) == 1
    room.directory.bug = None
    assert await room.find() == "acme-r"


async def test_a_bug_in_the_directory_is_met_once_a_second_by_a_hot_key_and_not_by_each_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = await Room().warmed()
    room.directory.bug = RuntimeError("a bug")
    room.clock.now_s += REFRESH_S
    for _ in range(10):
        assert room.known() == "acme-r"
        await quiet()
    assert room.directory.calls == 2
    room.clock.now_s += RETRY_S
    assert room.known() == "acme-r"
    await quiet()
    assert (room.directory.calls, len(caplog.records)) == (3, 2)


async def test_a_look_that_fails_by_a_bug_lets_no_entry_live_beyond_ten_seconds() -> None:
    room = await Room().warmed()
    room.directory.bug = RuntimeError("a bug")
    room.clock.now_s += CACHE_S - 0.1
    assert room.known() == "acme-r"
    await quiet()
    room.clock.now_s += 0.1
    assert room.known() is None


async def test_many_who_present_the_same_unknown_key_are_one_question() -> None:
    room = Room()
    room.directory.hold()
    finding = [asyncio.create_task(room.find()) for _ in range(20)]
    await room.directory.asked()
    finding[0].cancel()
    room.directory.let()
    assert await asyncio.gather(*finding[1:]) == ["acme-r"] * 19
    assert room.directory.calls == 1


# While the directory is away


async def test_a_known_key_works_on_and_an_unknown_one_is_told_to_come_back() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += 100
    assert room.known() is None
    assert await room.find() == "acme-r"
    with pytest.raises(StoreUnavailable):
        await room.find(NO)
    assert room.known(NO) is None


async def test_a_key_in_use_waits_for_the_absent_directory_once_and_asks_once_a_second() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += CACHE_S
    await room.find()
    calls = room.directory.calls
    for _ in range(10):
        room.clock.now_s += RETRY_S / 2
        assert room.known() == "acme-r"
        await quiet()
    assert room.directory.calls == calls + 5


async def test_a_key_that_was_idle_asks_before_it_is_served_as_the_directory_may_be_back() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += CACHE_S
    await room.find()
    room.directory.is_away = False
    room.directory.keys.clear()
    room.clock.now_s += 2 * RETRY_S
    assert room.known() is None
    assert await room.find() == ""


async def test_a_known_key_works_for_ten_minutes_without_the_directory_and_no_longer() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += STALE_S - 0.5
    assert await room.find() == "acme-r"
    assert room.known() == "acme-r"
    room.clock.now_s += 0.5
    assert room.known() is None
    with pytest.raises(StoreUnavailable):
        await room.find()


async def test_a_background_look_that_finds_the_directory_away_harms_nothing() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += REFRESH_S
    assert room.known() == "acme-r"
    await quiet()
    assert room.known() == "acme-r"
    assert room.directory.calls == 2


async def test_a_directory_that_is_back_is_believed_again() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.clock.now_s += 100
    await room.find()
    room.directory.is_away = False
    room.clock.now_s += RETRY_S
    room.known()
    await quiet()
    room.clock.now_s += REFRESH_S - 0.1
    calls = room.directory.calls
    assert room.known() == "acme-r"
    assert room.directory.calls == calls


# News


async def test_a_revoked_key_is_asked_for_again_at_once() -> None:
    room = await Room().warmed()
    room.directory.keys.clear()
    room.lookups.forget("key:acme-r")
    assert room.known() is None
    assert await room.find() == ""


async def test_a_revoked_key_does_not_outlast_a_directory_that_goes_away() -> None:
    room = await Room().warmed()
    room.lookups.forget("key:acme-r")
    room.directory.is_away = True
    with pytest.raises(StoreUnavailable):
        await room.find()


async def test_a_created_key_works_at_once() -> None:
    room = Room()
    await room.find(NO)
    room.directory.keys["no"] = Key("new", "acme")
    room.lookups.forget("key:new")
    assert await room.find(NO) == "new"


async def test_after_a_gap_in_the_news_every_key_is_asked_for_again() -> None:
    room = await Room().warmed()
    await room.find(NO)
    room.lookups.forget("all")
    assert (room.known(), room.known(NO)) == (None, None)
    room.directory.keys.clear()
    assert await room.find() == ""


async def test_a_gap_in_the_news_does_not_end_what_outlasts_the_directory() -> None:
    room = await Room().warmed()
    room.directory.is_away = True
    room.lookups.forget("all")
    assert await room.find() == "acme-r"
    assert room.known() == "acme-r"


@pytest.mark.parametrize("what", ["key:acme-r", "all"])
async def test_what_was_asked_before_the_news_is_not_kept_and_told_to_nobody_who_comes(what: str) -> None:
    room = Room()
    room.directory.hold()
    before = asyncio.create_task(room.find())
    await room.directory.asked()
    room.directory.keys.clear()
    room.lookups.forget(what)
    after = asyncio.create_task(room.find())
    await room.directory.asked()
    room.directory.let()
    assert (await before, await after) == ("acme-r", "")
    assert room.known() == ""


async def test_that_a_key_was_unknown_before_the_news_is_not_kept_either() -> None:
    room = Room()
    room.directory.hold()
    before = asyncio.create_task(room.find(NO))
    await room.directory.asked()
    room.lookups.forget("key:new")
    room.directory.let()
    assert await before == ""
    assert room.known(NO) is None


async def test_a_changed_file_takes_effect_on_known_keys_at_once() -> None:
    room = await Room().warmed()
    await room.find(NO)
    room.limit = 7
    room.lookups.revise()
    entry = room.lookups.known(KEY)
    assert entry is not None
    assert entry.caller is not None
    assert entry.caller.tenant.max_concurrency == 7
    assert room.known(NO) is None


async def test_what_was_asked_before_the_file_changed_is_not_kept() -> None:
    room = Room()
    room.directory.hold()
    before = asyncio.create_task(room.find())
    await room.directory.asked()
    room.lookups.revise()
    room.directory.let()
    await before
    assert room.known() is None


async def test_closing_ends_what_is_being_asked() -> None:
    room = Room()
    room.directory.hold()
    finding = asyncio.create_task(room.find())
    await room.directory.asked()
    await room.lookups.aclose()
    with pytest.raises(asyncio.CancelledError):
        await finding
    assert room.directory.busy == 0

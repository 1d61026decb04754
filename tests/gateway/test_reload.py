"""Does a changed configuration file come into force, and a broken one not?"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.configuration import load
from gateway.reload import Watcher
from gateway.settings import Settings
from tests.gateway.configuration.files import GOOD

OTHER = GOOD.replace('id = "acme-1"', 'id = "acme-2"')
BROKEN = GOOD.replace('tenant = "acme"', 'tenant = "nobody"') + "\n[server]\nport = -1\n"
HALF = GOOD[: len(GOOD) // 2]


class House:
    """A configuration file, and what came of it."""

    def __init__(self, path: Path, text: str = GOOD) -> None:
        self.path = path
        self.write(text)
        self.loads = 0
        self.applied: list[Settings] = []
        self.bug: Exception | None = None
        self.on_load: Callable[[], None] = lambda: None
        self.changed = asyncio.Event()
        self.watcher = self.watch()

    def watch(self, interval_s: float = 60, settle_s: float = 0) -> Watcher:
        running = load(self.path, {})
        return Watcher(self.path, running, self.load, self.apply, interval_s=interval_s, settle_s=settle_s)

    def write(self, text: str) -> None:
        """As most editors and tools do: a new file takes the place of the old one."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    def load(self) -> Settings:
        self.loads += 1
        self.on_load()
        return load(self.path, {})

    def apply(self, settings: Settings) -> None:
        self.applied.append(settings)
        self.changed.set()
        if self.bug:
            raise self.bug

    async def look(self) -> None:
        """Look until there is no reason to look again soon."""
        while not await self.watcher.look():
            pass

    @property
    def keys(self) -> list[str]:
        """The ids of the keys of each file that came into force."""
        return [key.id for settings in self.applied for key in settings.keys]


@pytest.fixture
async def house(tmp_path: Path) -> House:
    """One whose file has been read once and not changed since."""
    made = House(tmp_path / "gateway.toml")
    await made.look()
    return made


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


# One look


async def test_new_keys_come_into_force(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.reload")
    house.write(OTHER)
    await house.look()

    assert house.keys == ["acme-2"]
    assert said(caplog, logging.INFO) == [
        f"{house.path} has changed; in force are its keys (1 workers, 1 tenants, 1 keys)"
    ]
    assert not said(caplog, logging.WARNING)


async def test_new_tenants_come_into_force(house: House) -> None:
    house.write(GOOD.replace('[[tenants]]\nid = "acme"', '[[tenants]]\nid = "acme"\nmax_concurrency = 2'))
    await house.look()

    assert [settings.tenants[0].max_concurrency for settings in house.applied] == [2]


async def test_an_unchanged_file_is_not_read_again(house: House) -> None:
    loads = house.loads
    await house.look()

    assert (house.loads, house.applied) == (loads, [])


async def test_a_file_that_changes_in_no_tenant_or_key_brings_nothing_into_force(house: House) -> None:
    loads = house.loads
    house.write(GOOD + "# a remark\n")
    await house.look()

    assert (house.loads, house.applied) == (loads + 1, [])


async def test_a_change_between_the_start_and_the_first_look_is_not_missed(tmp_path: Path) -> None:
    house = House(tmp_path / "gateway.toml")
    house.write(OTHER)
    await house.look()

    assert house.keys == ["acme-2"]


async def test_a_change_in_place_is_seen_by_its_time_or_its_size(house: House) -> None:
    before = house.path.stat()
    house.path.write_text(OTHER)
    os.utime(house.path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    await house.look()
    assert house.keys == ["acme-2"]

    before = house.path.stat()
    house.path.write_text(OTHER.replace("acme-2", "acme-10"))
    os.utime(house.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await house.look()
    assert house.keys == ["acme-2", "acme-10"]


async def test_another_file_of_the_same_time_and_size_is_seen(house: House) -> None:
    before = house.path.stat()
    house.write(OTHER)
    os.utime(house.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await house.look()

    assert house.keys == ["acme-2"]


async def test_a_mounted_configuration_is_followed_when_its_link_is_exchanged(tmp_path: Path) -> None:
    """As Kubernetes does with a ConfigMap: gateway.toml → data/gateway.toml, data → version."""
    for version, text in (("one", GOOD), ("two", OTHER)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "gateway.toml").write_text(text)
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "link.toml").symlink_to("data/gateway.toml")
    house = House(tmp_path / "house.toml")
    house.path = tmp_path / "link.toml"
    house.watcher = house.watch()
    await house.look()
    assert house.keys == []

    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(tmp_path / "data")
    await house.look()

    assert house.keys == ["acme-2"]


# Files that are not in order


async def test_a_broken_file_changes_nothing_and_all_its_problems_are_told_in_one_line(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.write(BROKEN)
    await house.look()
    await house.look()

    assert house.applied == []
    (line,) = said(caplog, logging.ERROR)
    assert line.startswith(f"{house.path} has problems, and what it said before stays in force: ")
    assert "server.port = -1: must be at least 0" in line
    assert 'keys[0].tenant = "nobody": unknown tenant' in line
    assert "\n" not in line


async def test_a_file_that_is_mended_comes_into_force(house: House) -> None:
    house.write(BROKEN)
    await house.look()
    house.write(OTHER)
    await house.look()

    assert house.keys == ["acme-2"]


@pytest.mark.parametrize("is_missing", [True, False])
async def test_that_a_file_is_in_order_again_is_told_once_even_if_it_is_as_before(
    house: House, caplog: pytest.LogCaptureFixture, is_missing: bool
) -> None:
    caplog.set_level(logging.INFO, "gateway.reload")
    if is_missing:
        house.path.unlink()
    else:
        house.write(BROKEN)
    await house.look()
    assert said(caplog, logging.INFO) == []
    for text in (GOOD, GOOD + "# a remark\n"):
        house.write(text)
        await house.look()

    assert said(caplog, logging.INFO) == [f"{house.path} is in order again"]
    assert house.applied == []


async def test_a_file_that_is_being_written_is_not_read_before_it_is_done(house: House) -> None:
    loads = house.loads
    house.path.write_text(HALF)
    assert not await house.watcher.look()
    house.path.write_text(OTHER)
    assert not await house.watcher.look()
    assert (house.loads, house.keys) == (loads, [])
    assert await house.watcher.look()

    assert (house.loads, house.keys) == (loads + 1, ["acme-2"])


async def test_what_is_written_while_the_file_is_read_is_read_thereafter(house: House) -> None:
    def write_on() -> None:
        house.on_load = lambda: None
        house.path.write_text(OTHER)

    house.on_load = write_on
    house.path.write_text(GOOD + "# still being written\n")
    await house.look()
    await house.look()

    assert house.keys == ["acme-2"]
    loads = house.loads
    await house.look()
    assert house.loads == loads


async def test_a_file_that_is_gone_is_told_once_and_read_when_it_is_back(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.path.unlink()
    await house.look()
    await house.look()
    assert said(caplog, logging.ERROR) == [
        f"{house.path} cannot be read: No such file or directory. What it said before stays in force"
    ]
    house.write(OTHER)
    await house.look()

    assert house.keys == ["acme-2"]


async def test_a_file_that_is_gone_for_a_moment_is_not_told(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    moved = house.path.rename(house.path.with_suffix(".away"))
    assert not await house.watcher.look()
    moved.rename(house.path)
    assert await house.watcher.look()

    assert (house.keys, said(caplog, logging.ERROR)) == ([], [])


# What needs a restart


async def test_settings_that_need_a_restart_are_named_and_the_others_come_into_force(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    changed = '[server]\nport = 9\ndrain_s = 1\n[auth]\ncache_salt_secret = "s"\n'
    house.write(changed + OTHER.replace("8101", "8102"))
    await house.look()

    assert house.keys == ["acme-2"]
    assert said(caplog, logging.WARNING) == [
        f"{house.path} has changed, but these need a restart: "
        "server.port, server.drain_s, auth.cache_salt_secret"
    ]


async def test_a_setting_that_is_as_it_was_at_the_start_needs_no_restart(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.write("[server]\nport = 9\n" + GOOD)
    await house.look()
    caplog.clear()
    house.write(GOOD)
    await house.look()

    assert said(caplog, logging.WARNING) == []
    assert house.applied == []


# The task


async def test_the_file_is_looked_at_again_and_again(tmp_path: Path) -> None:
    house = House(tmp_path / "gateway.toml")
    async with asyncio.timeout(10), house.watch(interval_s=0.001):
        for text in (OTHER, GOOD):
            house.write(text)
            await house.changed.wait()
            house.changed.clear()

    assert house.keys == ["acme-2", "acme-1"]


async def test_a_change_is_settled_sooner_than_the_next_regular_look(tmp_path: Path) -> None:
    house = House(tmp_path / "gateway.toml")
    watcher = house.watch(interval_s=3600, settle_s=0.001)
    house.write(OTHER)
    pauses: list[float] = []
    third = asyncio.Event()

    async def told_within(pause_s: float) -> bool:
        pauses.append(pause_s)
        if len(pauses) == 3:
            third.set()
            await asyncio.Event().wait()
        return False

    watcher._told_within = told_within  # type: ignore[method-assign]
    async with asyncio.timeout(10), watcher:
        await third.wait()

    assert (pauses, house.keys) == ([0, 0.001, 3600], ["acme-2"])


async def test_who_is_told_to_look_reads_the_file_at_once_even_if_it_looks_unchanged(house: House) -> None:
    async with asyncio.timeout(10), house.watch() as watcher:
        for text in (OTHER, GOOD):
            house.path.write_text(text)
            watcher.look_now()
            await house.changed.wait()
            house.changed.clear()
        loaded = asyncio.Event()
        loop = asyncio.get_running_loop()

        def note() -> None:
            loop.call_soon_threadsafe(loaded.set)

        house.on_load = note
        watcher.look_now()
        await loaded.wait()

    assert house.keys == ["acme-2", "acme-1"]


async def test_being_told_ends_the_pause_and_counts_once(house: House) -> None:
    watcher = house.watch()
    pausing = asyncio.create_task(watcher._told_within(3600))
    await asyncio.sleep(0)
    assert not pausing.done()
    watcher.look_now()

    assert await pausing
    assert not await watcher._told_within(0)


async def test_a_bug_does_not_leave_the_file_unwatched(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = house.watch()
    house.bug = RuntimeError("a bug")
    async with asyncio.timeout(10), watcher:
        for text in (OTHER, GOOD + '[[tenants]]\nid = "more"\n'):
            house.write(text)
            watcher.look_now()
            await house.changed.wait()
            house.changed.clear()

    assert len(house.applied) == 2
    assert said(caplog, logging.ERROR) == [f"watching {house.path} failed by a bug"] * 2
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [house.bug] * 2


async def test_nothing_is_left_once_it_has_ended(house: House) -> None:
    for bug in (None, RuntimeError("a bug")):
        house.bug = bug
        house.write(OTHER)
        async with asyncio.timeout(10), house.watch(interval_s=0.001):
            house.write(GOOD)
            await house.changed.wait()
            house.changed.clear()

        assert len(asyncio.all_tasks()) == 1  # the test

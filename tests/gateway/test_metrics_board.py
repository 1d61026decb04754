"""Is what processes have counted kept when they die, and fresh and never less when it is asked for?"""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.accounting import Ledger
from gateway.metrics import board
from gateway.metrics.board import Board
from tests.gateway.test_metrics_snapshot import source
from tests.gateway.test_model import Clock, trip, worker


class Process:
    """One of two processes: what it counts, and its board."""

    def __init__(self, folder: Path, number: int) -> None:
        self.ledger = Ledger(Clock(), lambda line: None)
        self.board = Board(source(self.ledger, ((worker("w0", 1), True),)), folder, number, 2)
        self.file = folder / f"{number}.counts"

    def count(self, requests: int) -> None:
        for _ in range(requests):
            self.ledger.close(trip(outcome="ok"))

    async def told(self) -> int:
        """How many requests of all processes it tells of."""
        total, _ = await self.board.total()
        return sum(total.counters.get("requests", {}).values())

    async def gauges(self) -> tuple[set[int], float]:
        """Which processes run, and how many requests are in flight: one at each."""
        total, pids = await self.board.total()
        return set(pids), sum(total.gauges["in_flight"].values())

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[None]:
        """It runs meanwhile. Of its end, nothing is written."""
        async with self.board:
            yield
            last = self.file.read_bytes()
        self.file.write_bytes(last)


@pytest.fixture(autouse=True)
def written_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "WRITE_EVERY_S", 3600)


@pytest.fixture
def here(tmp_path: Path) -> Process:
    return Process(tmp_path, 0)


@pytest.fixture
def there(tmp_path: Path) -> Process:
    return Process(tmp_path, 1)


async def test_each_tells_at_once_what_all_have_counted(here: Process, there: Process) -> None:
    async with here.board, there.board:
        for requests in (1, 2):
            here.count(requests)
            assert await here.told() == await there.told()
            there.count(requests)
            assert await here.told() == await there.told()
        assert await here.told() == 6
        assert await here.gauges() == ({0, 1}, 2)


async def test_what_was_told_of_a_process_is_told_after_it_was_killed(here: Process, there: Process) -> None:
    async with here.board:
        async with there.killed():
            there.count(5)
            assert await here.told() == 5
            there.count(1)  # of that nobody has heard
        assert await here.told() == 5
        assert await here.gauges() == ({0}, 1)


async def test_what_a_process_told_of_itself_outlives_it(here: Process, there: Process) -> None:
    async with there.board:
        async with here.killed():
            here.count(5)
            assert await here.told() == 5
        assert await there.told() == 5


async def test_a_successor_counts_on(here: Process, there: Process, tmp_path: Path) -> None:
    async with here.board:
        async with there.killed():
            there.count(5)
            await here.told()
        for requests in (6, 7):
            successor = Process(tmp_path, 1)
            async with successor.killed():
                assert await here.told() == requests - 1
                successor.count(1)
                assert await here.told() == await successor.told() == requests
                assert await here.gauges() == ({0, 1}, 2)


async def test_a_process_that_ends_well_leaves_all_its_counts(here: Process, there: Process) -> None:
    async with here.board:
        async with there.board:
            there.count(5)
        assert await here.told() == 5


async def test_counts_are_written_though_nobody_asks(there: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "WRITE_EVERY_S", 0.01)
    async with there.board:
        before = there.file.read_bytes()
        there.count(1)
        while there.file.read_bytes() == before:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)


async def test_what_has_not_changed_is_not_written_again(here: Process) -> None:
    async with here.board:
        here.count(1)
        await here.told()
        before = here.file.stat().st_ino  # a new file each time
        await here.told()
        assert here.file.stat().st_ino == before
        here.count(1)
        await here.told()
        assert here.file.stat().st_ino != before


# Siblings that do not answer


async def test_a_process_that_has_not_begun_is_left_out(here: Process) -> None:
    async with here.board:
        assert await here.gauges() == ({0}, 1)


async def test_a_process_that_hangs_is_told_of_by_its_file(
    here: Process, there: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "ANSWER_S", 0.01)
    async with there.killed():
        there.count(5)
        await there.told()
    (tmp_path / "1.socket").unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "1.socket"))
        silent.listen()
        async with here.board:
            assert await here.told() == 5
            assert await here.gauges() == ({0, 1}, 2)


async def test_a_process_that_dies_while_it_is_asked_shows_no_gauges(
    here: Process, there: Process, tmp_path: Path
) -> None:
    async with there.killed():
        there.count(5)
        await there.told()
    dying = await asyncio.start_unix_server(lambda _, writer: writer.close(), tmp_path / "1.socket")
    async with dying, here.board:
        assert await here.told() == 5
        assert await here.gauges() == ({0}, 1)


# A folder that cannot be written to


async def test_while_nothing_can_be_written_metrics_stand_still_and_it_is_said_once(
    here: Process, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draft = tmp_path / "0.draft"
    async with here.board:
        here.count(1)
        assert await here.told() == 1
        draft.mkdir()
        for _ in range(2):
            here.count(1)
            assert await here.told() == 1
        assert caplog.messages == [f"metrics stand still: cannot write {here.file}: Is a directory"]
        draft.rmdir()
        assert await here.told() == 3
        draft.mkdir()
        here.count(1)
        await here.told()
        assert len(caplog.messages) == 2  # another time
        draft.rmdir()


async def test_a_folder_that_is_gone_does_no_harm(here: Process, tmp_path: Path) -> None:
    async with here.board:
        shutil.rmtree(tmp_path)
        here.count(1)
        assert await here.told() == 0

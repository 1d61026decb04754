"""Is each request's line added to the file, whole and once, whatever happens to the file?"""
# ruff: noqa: ASYNC240 - nothing else waits for the loop here

import asyncio
import json
import logging
import os
import resource
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.usage import Records, RecordsUnwritable, records
from tests.gateway.usage.samples import NOON, ended

GUARD_S = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.jsonl"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Records]:
    written = Records(str(path))
    yield written
    written.close()


@contextmanager
def disk_full_at(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond that; what still fits is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lines(path: Path) -> list[dict[str, Any]]:
    """Those that are whole."""
    read = []
    for line in path.read_text().splitlines():
        if line.endswith("}"):
            read.append(json.loads(line))
    return read


def ids(path: Path) -> list[str]:
    return [line["request_id"] for line in lines(path)]


async def test_a_line_tells_who_used_what_and_when(path: Path) -> None:
    async with opened(path) as written:
        written.write(ended(id="r-1", ended_at=NOON + 0.25))
        written.write(ended(id="r-2", model=None, charged=None, outcome="rate_limit_exceeded"))

    assert path.read_bytes().endswith(b"}\n")
    assert lines(path) == [
        {
            "time": "2026-11-30T12:00:00.250000Z",
            "request_id": "r-1",
            "tenant": "acme",
            "key": "acme-1",
            "model": "small",
            "endpoint": "chat",
            "outcome": "ok",
            "prompt_tokens": 100,
            "cached_tokens": 64,
            "completion_tokens": 20,
        },
        {
            "time": "2026-11-30T12:00:00Z",
            "request_id": "r-2",
            "tenant": "acme",
            "key": "acme-1",
            "model": "none",
            "endpoint": "chat",
            "outcome": "rate_limit_exceeded",
            "prompt_tokens": 0,
            "cached_tokens": 0,
            "completion_tokens": 0,
        },
    ]


async def test_lines_wait_for_one_flush(path: Path) -> None:
    async with opened(path) as written:
        written.write(ended(id="r-1"))
        written.write(ended(id="r-2"))
        assert path.read_bytes() == b""

        written.flush()

        assert ids(path) == ["r-1", "r-2"]


class Counted(Records):
    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


async def timers_go_off() -> None:
    """Those that were set before for FLUSH_EVERY_S, since they come first."""
    await asyncio.sleep(records.FLUSH_EVERY_S)


async def test_lines_are_written_by_themselves_after_a_while_and_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FLUSH_EVERY_S", 0.001)
    written = Counted(str(path))
    for number in range(2):
        written.write(ended(id=f"r-{number}a"))
        written.write(ended(id=f"r-{number}b"))
        await timers_go_off()

        assert ids(path)[-2:] == [f"r-{number}a", f"r-{number}b"]
        assert written.flushes == number + 1
    written.close()


async def test_what_is_there_already_stays(path: Path) -> None:
    path.write_text('{"request_id":"old"}\n')
    async with opened(path) as written:
        written.write(ended(id="new"))

    assert ids(path) == ["old", "new"]


async def test_several_processes_can_add_to_one_file(path: Path) -> None:
    async with opened(path) as one, opened(path) as other:
        for number in range(3):
            for name, written in (("a", one), ("b", other)):
                written.write(ended(id=f"{name}-{number}"))
                written.flush()

    assert ids(path) == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


async def test_not_everybody_may_read_who_used_what(path: Path) -> None:
    async with opened(path):
        assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


@pytest.mark.parametrize("end", ["moved", "deleted"])
async def test_a_file_that_is_gone_is_begun_anew(path: Path, end: str) -> None:
    moved = path.with_suffix(".1")
    async with opened(path) as written:
        written.write(ended(id="r-1"))
        written.flush()
        if end == "moved":
            path.rename(moved)
        else:
            path.unlink()
        written.flush()
        assert not path.exists()  # there is nothing to write
        written.write(ended(id="r-2"))
        written.flush()
        written.write(ended(id="r-3"))

    assert ids(path) == ["r-2", "r-3"]
    assert end == "deleted" or ids(moved) == ["r-1"]


async def test_another_file_in_its_place_is_added_to(path: Path) -> None:
    async with opened(path) as written:
        path.rename(path.with_suffix(".1"))
        path.touch()
        written.write(ended(id="r-1"))

    assert ids(path) == ["r-1"]


async def test_files_are_closed_when_they_were_moved_and_at_the_end(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with opened(path) as written:
        for number in range(5):
            path.unlink()
            written.write(ended(id=f"r-{number}"))
            written.flush()

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/usage.jsonl", "No such file or directory"),
        (".", "Is a directory"),
        ("device", "it is no regular file"),
        ("pipe", "No such device or address"),
        ("read-pipe", "it is no regular file"),
    ],
)
async def test_a_path_that_cannot_be_a_file_is_told_at_the_start(
    tmp_path: Path, name: str, reason: str
) -> None:
    os.symlink("/dev/null", tmp_path / "device")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "read-pipe")
    reader = os.open(tmp_path / "read-pipe", os.O_RDONLY | os.O_NONBLOCK)
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(RecordsUnwritable) as told:
        Records(str(tmp_path / name))

    assert str(told.value) == (
        f'usage.records = "{tmp_path / name}": cannot be opened: {reason}. '
        "Name a file in a folder that the gateway may write to, or leave it out"
    )
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(reader)


class Said(logging.Handler):
    """What the log said, and an event for each time it said something."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.news.set()


@pytest.fixture
async def said() -> AsyncIterator[Said]:
    listener = Said()
    records.log.addHandler(listener)
    yield listener
    records.log.removeHandler(listener)


async def test_a_full_disk_delays_lines_and_loses_none(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FLUSH_EVERY_S", 0.001)
    async with opened(path) as written:
        written.write(ended(id="r-1"))
        written.flush()
        line_bytes = path.stat().st_size
        with disk_full_at(line_bytes * 5 // 2):
            for number in (2, 3, 4):
                written.write(ended(id=f"r-{number}"))
            written.flush()
            written.flush()
            assert ids(path) == ["r-1", "r-2"]
            assert path.stat().st_size == line_bytes * 5 // 2  # the third was cut short
            await timers_go_off()
            said.news.clear()
        async with asyncio.timeout(GUARD_S):
            await said.news.wait()  # nobody asked for another attempt

    assert ids(path) == ["r-1", "r-2", "r-3", "r-4"]
    assert said.messages == [
        f'usage.records = "{path}": cannot be written: File too large. Records wait',
        "usage.records is written again; 0 records are lost so far",
    ]


async def test_lines_that_wait_are_bounded_and_the_log_tells_how_many_did_not_fit(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_HELD_BYTES", 300)
    async with opened(path) as written:
        with disk_full_at(0):
            for number in range(5):
                written.write(ended(id=f"r-{number}"))
            written.flush()
        written.flush()
        written.write(ended(id="r-5"))

    assert ids(path) == ["r-0", "r-1", "r-5"]
    assert said.messages[1:] == ["usage.records is written again; 3 records are lost so far"]


async def test_lines_that_cannot_be_written_at_the_end_are_told(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FLUSH_EVERY_S", 0.001)
    written = Counted(str(path))
    for number in range(3):
        written.write(ended(id=f"r-{number}"))
    with disk_full_at(0):
        written.close()
    await timers_go_off()

    assert written.flushes == 1  # no timer was left
    assert said.messages[1:] == ["usage.records: the last 3 records are lost"]
    assert path.read_bytes() == b""


async def test_a_file_that_cannot_be_begun_anew_is_a_failure_like_others(tmp_path: Path, said: Said) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with opened(folder / "usage.jsonl") as written:
        folder.rename(tmp_path / "moved")
        written.write(ended(id="r-1"))
        written.flush()
        folder.mkdir()
        written.flush()

    assert ids(folder / "usage.jsonl") == ["r-1"]
    assert "No such file or directory" in said.messages[0]

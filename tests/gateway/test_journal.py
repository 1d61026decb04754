"""Is each request's line written, whole and in order, and does none wait for another request?"""

import asyncio
import io
import json
import select
import sys
from typing import Any

import pytest

from gateway import journal
from gateway.journal import Journal


class Log(io.BytesIO):
    """Counts how often it was flushed."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        super().flush()

    def lines(self) -> list[object]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


async def test_lines_wait_for_one_flush_and_keep_their_order() -> None:
    log = Log()
    written = Journal(log)
    for number in range(3):
        written.write({"number": number, "text": "é\n"})
    assert log.getvalue() == b""
    written.flush()
    assert log.lines() == [{"number": number, "text": "é\n"} for number in range(3)]
    assert log.getvalue().endswith(b"}\n")
    assert log.flushes == 1


async def test_without_lines_nothing_is_flushed() -> None:
    log = Log()
    written = Journal(log)
    written.write({})
    written.flush()
    written.flush()
    assert (log.flushes, log.lines()) == (1, [{}])


async def test_lines_are_written_by_themselves_after_a_while_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "FLUSH_EVERY_S", 0.001)
    flushed = asyncio.Event()

    class Telling(Log):
        def flush(self) -> None:
            super().flush()
            flushed.set()

    log = Telling()
    written = Journal(log)
    for number in range(2):
        written.write({"number": number})
        await flushed.wait()
        flushed.clear()
    assert log.lines() == [{"number": 0}, {"number": 1}]


async def test_the_log_goes_to_standard_output_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(log, write_through=True))
    written = Journal()
    written.write({"a": 1})
    written.flush()
    assert log.lines() == [{"a": 1}]


async def test_what_goes_to_a_pipe_at_once_is_whole_lines_that_no_other_process_can_break() -> None:
    writes: list[bytes] = []

    class Pipe(io.BytesIO):
        def write(self, piece: Any) -> int:
            writes.append(bytes(piece))
            return super().write(piece)

    log = Pipe()
    written = Journal(log)
    records: list[dict[str, object]] = [
        {"text": "x" * length} for length in (100, 4000, 5000, 10, *[900] * 9)
    ]
    for record in records:
        written.write(record)
    written.flush()
    assert [json.loads(line) for line in log.getvalue().splitlines()] == records
    assert all(piece.endswith(b"\n") for piece in writes)
    assert [len(piece) for piece in writes if len(piece) > select.PIPE_BUF] == [5012]  # a line by itself
    assert len(writes) == 6  # as few as can be

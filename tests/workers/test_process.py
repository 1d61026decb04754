"""A worker process with its group, and the tail of its log."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.conftest import FakeVllm, has_ended
from workers.guard import Guard
from workers.process import LOG_TAIL_BYTES, WorkerProcess, adopting_orphans, log_tail


async def test_a_process_that_ended_can_be_asked_to_end_again(fake_vllm: FakeVllm) -> None:
    with adopting_orphans(), Guard() as guard:
        process = await WorkerProcess.start(fake_vllm.launch("w0", "crash"), guard)
        assert await process.wait() == 1
        process.terminate()
        await process.clear()
        await process.clear()


async def test_a_cleared_group_is_gone_and_reaped(fake_vllm: FakeVllm) -> None:
    with adopting_orphans(), Guard() as guard:
        process = await WorkerProcess.start(fake_vllm.launch("w0", "crash"), guard)
        await process.wait()
        await process.clear()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.group, 0)


class LostGuard(Guard):
    """A guard that is killed before it is told of anything; notes what it was told."""

    def watch(self, group: int) -> None:
        """Fails as a guard does whose process is gone."""
        self.told = group
        self._process.kill()
        self._process.wait()
        super().watch(group)


async def test_no_process_is_left_running_without_a_guard(fake_vllm: FakeVllm) -> None:
    launch = replace(fake_vllm.launch("w0", "healthy"), argv=("sleep", "600"))
    with LostGuard() as guard:
        with pytest.raises(BrokenPipeError):
            await WorkerProcess.start(launch, guard)
        assert has_ended(guard.told, 0)


def test_the_tail_of_a_log_is_its_last_lines_without_blank_ones(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    assert log_tail(log, 3) == []
    log.write_text("one\n\ntwo\n  \nthree\n")
    assert log_tail(log, 2) == ["two", "three"]
    assert log_tail(log, 9) == ["one", "two", "three"]


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    log.write_bytes(b"a" * LOG_TAIL_BYTES + b"\xff\nlast\n")
    cut, last = log_tail(log, 2)
    assert len(cut) == LOG_TAIL_BYTES - len(b"\nlast\n")
    assert cut.endswith("\N{REPLACEMENT CHARACTER}")
    assert last == "last"

"""Is the time of a program that of all its processes, whoever of them has ended?"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.overhead.processors import (
    TICKS_PER_S,
    CpuTime,
    parsed,
    staying_on,
    tree,
    tree_time,
    written,
)

# A child that works, and one that has worked, ended and been waited for; then all wait for our word.
FAMILY = """
import os, sys, time
def work():
    while time.process_time() < 0.2: pass
if not (ended := os.fork()):
    work(); os._exit(0)
os.waitpid(ended, 0)
read, write = os.pipe()
if not os.fork():
    work(); os.write(write, b"1"); sys.stdin.read(); os._exit(0)
os.read(read, 1)
print("done", flush=True)
sys.stdin.read()
os.wait()
"""


def process(proc: Path, pid: int, times: Sequence[int], threads: Sequence[Sequence[int]]) -> None:
    """In a made-up /proc. times: user, system, the same of ended children, in ticks. threads: children."""
    folder = proc / str(pid)
    for number, children in enumerate(threads):
        (folder / "task" / str(pid + number)).mkdir(parents=True)
        (folder / "task" / str(pid + number) / "children").write_text(" ".join(map(str, children)))
    before = " ".join(["0"] * 10)  # from the parent's id on
    (folder / "stat").write_text(f"{pid} (a (bad) name) S {before} {' '.join(map(str, times))} 20 0")


def test_time_is_summed_over_the_tree_and_kept_apart(tmp_path: Path) -> None:
    process(tmp_path, 10, (100, 50, 7, 3), [[20], [30]])
    process(tmp_path, 20, (10, 20, 0, 0), [[40]])
    process(tmp_path, 30, (1, 2, 0, 0), [[]])
    process(tmp_path, 40, (1000, 2000, 0, 0), [[]])
    process(tmp_path, 50, (10**6, 10**6, 0, 0), [[]])  # somebody else

    time = tree_time(10, tmp_path)

    assert sorted(tree(10, tmp_path)) == [10, 20, 30, 40]
    assert time == CpuTime(1118 / TICKS_PER_S, 2075 / TICKS_PER_S)
    assert time.total_s == pytest.approx(3193 / TICKS_PER_S)


def test_a_process_that_has_ended_meanwhile_has_no_time(tmp_path: Path) -> None:
    process(tmp_path, 10, (100, 0, 0, 0), [[20]])
    assert tree_time(10, tmp_path) == CpuTime(100 / TICKS_PER_S, 0)


def test_times_are_added_and_subtracted_by_kind() -> None:
    assert CpuTime(1, 2) + CpuTime(10, 20) == CpuTime(11, 22)
    assert CpuTime(10, 20) - CpuTime(1, 2) == CpuTime(9, 18)


def test_children_count_while_they_run_and_when_they_have_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"done\n"
        members, time = tree(program.pid), tree_time(program.pid)
        program.communicate(b"")

    assert len(members) == 2
    assert time.total_s >= 0.35  # both have used 0.2 s, told in hundredths


def test_processors_are_written_as_taskset_takes_them() -> None:
    assert parsed("0,2-4") == {0, 2, 3, 4}
    assert parsed(written(frozenset({3, 1}))) == {1, 3}
    with pytest.raises(ValueError, match="invalid literal"):
        parsed("first")


def test_we_stay_where_we_are_told_and_come_back() -> None:
    before = os.sched_getaffinity(0)
    one = frozenset([max(before)])
    with staying_on(one):
        assert os.sched_getaffinity(0) == one
        child = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        assert subprocess.run(child, capture_output=True, check=True).stdout.split() == [b"%d" % max(one)]
    assert os.sched_getaffinity(0) == before

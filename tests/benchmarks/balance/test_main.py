"""Does the command measure, judge, keep, and end the programs that it started?"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.balance import __main__ as command
from benchmarks.balance import measurements
from benchmarks.balance.callers import NotAnswered
from benchmarks.balance.measurements import Plan, Taken
from benchmarks.balance.orders import Outcome
from benchmarks.targets import Row
from tests.benchmarks.signalled import ended_by

SMALL = ["--processes", "2", "--streams", "4", "--visits", "3", "--rounds", "1"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def giving(monkeypatch: pytest.MonkeyPatch, *streams: dict[int, int], error: Exception | None = None) -> None:
    """Instead of measuring: these streams by process, and then the error."""

    def measure(plan: Plan) -> Iterator[Taken]:
        for each in streams:
            yield Taken("gateway", len(each), "burst", [Outcome(each)])
        if error is not None:
            raise error

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "scrape_rows", lambda plan: [Row("scrape", 1.0, "ms", at_most=20)])


def test_a_small_run_measures_every_order_and_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "HUNG_VISITS", 2)
    file = tmp_path / "balance.json"

    result = run(*SMALL, "--json", str(file))

    assert result.exit_code in (0, 1), result.output  # figures of so small a run mean nothing
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["benchmark"] == "balance"
    title = "2 processes, gateway:"
    most = f"{title} 4 streams,"
    assert [(row["name"], row["unit"], row["target"]) for row in kept["rows"]] == [
        (f"{most} burst: most / mean", "", "≤ 1.5"),
        (f"{most} one by one: most / mean", "", "≤ 1.5"),
        (f"{most} reused connections: most / mean", "", ""),
        (f"{most} after a kill: most / mean", "", "≤ 1.5"),
        (f"{most} after a kill: newcomer / mean", "", ""),
        (f"{most} after a kill: longest wait", "ms", "≤ 250 ms"),
        (f"{most} after a kill, beside idle connections: most / mean", "", "≤ 1.5"),
        (f"{most} after a kill, beside idle connections: newcomer / mean", "", ""),
        (f"{most} after a kill, beside idle connections: longest wait", "ms", "≤ 250 ms"),
        (f"{title} one hangs: longest wait", "ms", "≤ 250 ms"),
        (f"{title} visits: CPU of one", "µs", ""),
        (f"{title} lone visits: CPU of one", "µs", ""),
        ("2 processes: CPU of a scrape of /metrics, the first", "ms", ""),
        ("2 processes: CPU of a scrape of /metrics", "ms", "≤ 20 ms"),
    ]
    assert all(row["value"] >= 0 for row in kept["rows"])
    assert [sum(one["rounds"][0]["streams"]) for one in kept["orders"]][:3] == [4, 4, 4]


@pytest.mark.parametrize(("streams", "status"), [({0: 5, 1: 5}, 0), ({0: 9, 1: 1}, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    streams: dict[int, int], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    giving(monkeypatch, streams)
    assert run().exit_code == status


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    giving(monkeypatch, error=NotAnswered("a caller got no answer"))
    result = run()
    assert (result.exit_code, "a caller got no answer" in result.stderr) == (2, True)


def test_a_file_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("--json", str(tmp_path / "file" / "balance.json"))
    assert (result.exit_code, "cannot write" in result.stderr) == (2, True)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_a_signal_ends_it_and_all_that_it_started(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    module = ("benchmarks.balance", "--processes", "2", "--streams", "4", "--visits", "1000000")
    programs = 3  # the parent and two processes
    told = "measured: 2 processes, gateway: one hangs"
    assert await ended_by(number, module, programs, tmp_path, told) == status

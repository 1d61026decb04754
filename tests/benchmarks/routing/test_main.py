"""Does the command measure, judge, keep and draw, and end the programs that it started?"""

import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks import record
from benchmarks.command import CannotStart
from benchmarks.routing import __main__ as command
from benchmarks.routing import report
from benchmarks.routing.campaign import Campaign
from benchmarks.routing.results import Run
from benchmarks.routing.scenarios import OURS, ROUND_ROBIN, SCENARIOS
from tests.benchmarks.routing.made import run as made
from tests.benchmarks.signalled import ended_by


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def giving(monkeypatch: pytest.MonkeyPatch, *runs: Run, error: BaseException | None = None) -> list[Campaign]:
    """Instead of a campaign: these runs, and then the error. Returns what was asked for."""
    asked = []

    def played(campaign: Campaign, capacity_rps: float | None, say: Callable[[str], None]) -> Iterator[Run]:
        asked.append(campaign)
        yield from runs
        if error is not None:
            raise error

    monkeypatch.setattr(command, "prepare", lambda campaign: None)
    monkeypatch.setattr(command, "capacity_of", lambda campaign: 50.0)
    monkeypatch.setattr(command, "played", played)
    return asked


def compared(ours_s: float) -> list[Run]:
    waits = {OURS: ours_s, ROUND_ROBIN: 1.2}
    return [
        made("mixed", "0.7", arm, short_ttft_p99_s=wait_s, long_ttft_p99_s=wait_s)
        for arm, wait_s in waits.items()
    ]


def test_a_small_run_is_measured_shown_kept_and_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "results" / "routing.json"
    small = ["--scenario", "mixed", "--arm", "gateway:least_requests", "--seeds", "5", "--workers", "2"]

    result = run("run", *small, "--seconds", "1", "--warm-up", "0.5", "--rate", "12", "--json", str(file))

    assert result.exit_code in (0, 1), result.output  # the machine may have been late
    kept = json.loads(file.read_text())
    assert kept["parameters"]["engines"]["count"] == 2
    assert kept["capacity_rps"] == pytest.approx(12 / 0.7)
    [one] = kept["runs"]
    assert (one["arm"], one["seed"], one["figures"]["failed_share"]) == ("gateway:least_requests", 5, 0)
    assert "gateway:least_requests" in result.stdout
    assert "capacity: 17.1 requests/s" in result.stderr
    assert "1/1 mixed, 0.7, gateway:least_requests, seed 5" in result.stderr
    again = run("table", str(file))
    assert again.exit_code == 0
    assert again.stdout == result.stdout


@pytest.mark.parametrize(("ours_s", "status"), [(0.19, 0), (0.21, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    ours_s: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    giving(monkeypatch, *compared(ours_s))
    assert run("run", "--scenario", "mixed").exit_code == status


def test_left_out_everything_is_run_three_times_on_four_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    [asked] = (giving(monkeypatch), run("run"))[0]
    assert list(asked.scenarios) == list(SCENARIOS)
    assert (list(asked.arms), list(asked.seeds), asked.rate) == ([], [1, 2, 3], None)
    assert (asked.engines.count, asked.engines.speed) == (4, 1)
    assert asked.engines.long_prefill_token_threshold == 1024
    assert (asked.setting.seconds, asked.setting.warm_up_s, asked.setting.traces) == (None, 5, None)


def test_options_reach_the_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = giving(monkeypatch)
    run(
        *("run", "--scenario", "arena", "--scenario", "mixed", "--arm", OURS, "--seeds", "3,1,3"),
        *(
            "--seconds",
            "9",
            "--traces",
            str(tmp_path),
            "--speed",
            "0.5",
            "--long-prefill-token-threshold",
            "0",
        ),
    )
    [found] = asked
    assert (list(found.scenarios), list(found.arms), list(found.seeds)) == (
        ["arena", "mixed"],
        [OURS],
        [3, 1],
    )
    assert (found.setting.seconds, found.setting.traces) == (9, tmp_path)
    assert (found.engines.speed, found.engines.long_prefill_token_threshold) == (0.5, 0)


def test_workers_that_run_already_are_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    [asked] = (giving(monkeypatch), run("run", "--worker", "http://10.0.0.1:8000/", "--model", "q"))[0]
    assert asked.engines.urls == ("http://10.0.0.1:8000",)
    assert asked.engines.model == "q"
    assert list(asked.scenarios) == [name for name in SCENARIOS if name != "kill"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--worker", "http://a", "--scenario", "kill"], "not killed"),
        (["--worker", "http://a", "--speed", "2"], "--speed"),
        (["--seeds", "1,two"], "not like 1,2,3"),
        (["--arm", "gateway:best"], "is not one of"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = giving(monkeypatch)
    result = run("run", *arguments)
    assert (result.exit_code, asked) == (2, [])
    assert said in result.stderr


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = giving(monkeypatch)
    (tmp_path / "file").touch()
    result = run("run", "--json", str(tmp_path / "file" / "routing.json"))
    assert (result.exit_code, asked) == (2, [])
    assert "cannot write" in result.stderr


@pytest.mark.parametrize(
    ("error", "status"), [(CannotStart("mixed: it ended"), 2), (KeyboardInterrupt(), 130)]
)
def test_a_campaign_that_could_not_go_on_is_no_miss_and_what_there_is_of_it_is_kept(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = compared(0.3)
    giving(monkeypatch, *runs, error=error)
    file = tmp_path / "it.json"

    assert run("run", "--json", str(file)).exit_code == status
    assert report.read(file) == runs


def test_of_nothing_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    giving(monkeypatch, error=KeyboardInterrupt())
    file = tmp_path / "it.json"
    run("run", "--json", str(file))
    assert file.read_text() == ""


def kept(folder: Path, **more: Any) -> Path:
    file = folder / "kept.json"
    record.write(file, report.document({}, datetime.now(UTC), None, compared(0.1)) | more)
    return file


def test_what_was_kept_is_drawn(tmp_path: Path) -> None:
    result = run("plot", str(kept(tmp_path)), "--out", str(tmp_path / "charts"))
    assert result.exit_code == 0, result.output
    assert [file.name for file in (tmp_path / "charts").iterdir()] == ["routing-ttft.png"]
    assert "routing-ttft.png" in result.stdout


def test_where_nothing_can_be_drawn_it_is_told(tmp_path: Path) -> None:
    file = kept(tmp_path)
    result = run("plot", str(file), "--out", str(file / "charts"))
    assert result.exit_code == 2
    assert "cannot write to" in result.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_a_signal_ends_it_and_its_programs(number: signal.Signals, status: int, tmp_path: Path) -> None:
    module = ("benchmarks.routing", "run", "--scenario", "mixed", "--arm", "gateway:least_requests")
    programs = 4 + 1  # the workers and the gateway
    assert await ended_by(number, (*module, "--rate", "5"), programs, tmp_path) == status

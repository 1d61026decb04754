"""Does the command measure, judge, keep and draw, and end the programs that it started?"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from benchmarks.command import CannotStart
from benchmarks.overhead import __main__ as command
from benchmarks.overhead import contenders
from benchmarks.overhead.campaign import Campaign
from benchmarks.overhead.contenders import CONTENDERS, DIRECT, MEMORY, NGINX, PHASES, REDIS, VLLM_ROUTER
from benchmarks.overhead.phases import Plan
from benchmarks.overhead.results import Result
from tests.benchmarks.overhead.made import result
from tests.benchmarks.signalled import ended_by

FIRST, SECOND = sorted(os.sched_getaffinity(0))[:2]


def run(*arguments: str) -> Invoked:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def giving(
    monkeypatch: pytest.MonkeyPatch, *results: Result, error: BaseException | None = None
) -> list[Campaign]:
    """Instead of a campaign: these results, and then the error. Returns what was asked for."""
    asked = []

    def measured(campaign: Campaign, say: Callable[[str], None]) -> Iterator[Result]:
        asked.append(campaign)
        yield from results
        if error is not None:
            raise error

    monkeypatch.setattr(command, "prepare", lambda campaign, say: None)
    monkeypatch.setattr(command, "measured", measured)
    return asked


def compared(us: float, problem: str | None = None) -> list[Result]:
    return [
        result(VLLM_ROUTER, plain={"cpu_us": 100.0}),
        result(REDIS, plain={"cpu_us": us}),
        result(NGINX, problem=problem, plain={"cpu_us": 20.0}),
    ]


def test_a_small_run_is_measured_shown_kept_shown_again_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "results" / "overhead.json"
    small = ["--contender", DIRECT, "--contender", MEMORY, "--rounds", "1", "--seconds", "1"]
    phases = [option for phase in ("plain", "stream", "flood") for option in ("--phase", phase)]

    measured = run("run", *small, *phases, "--flood-tokens", "400", "--json", str(file))

    assert measured.exit_code == 0, measured.output  # nothing that is measured here has a target
    kept = json.loads(file.read_text())
    assert kept["parameters"]["phases"] == ["plain", "stream", "flood"]
    assert kept["versions"]["wrk"]
    direct, ours = kept["results"]
    assert (direct["problem"], ours["problem"]) == (None, None)
    assert list(direct["phases"]) == ["plain", "stream"]
    assert list(ours["phases"]) == ["plain", "stream", "flood"]
    assert all(figures["cpu_us"] > 0 for figures in ours["phases"].values())
    assert "cpu_us" not in direct["phases"]["plain"]
    assert measured.stderr.splitlines()[:2] == [f"1/2 round 1, {DIRECT}", f"2/2 round 1, {MEMORY}"]
    assert run("table", str(file)).stdout == measured.stdout
    assert run("plot", str(file), "--out", str(tmp_path)).exit_code == 0
    assert (tmp_path / "overhead.png").is_file()


@pytest.mark.parametrize(("us", "status"), [(100.0, 0), (101.0, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    us: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    giving(monkeypatch, *compared(us))
    assert run("run").exit_code == status


def test_who_could_not_be_measured_is_told_whatever_else_was(monkeypatch: pytest.MonkeyPatch) -> None:
    giving(monkeypatch, *compared(50.0, "plain: of 10 requests failed: 3 read"))
    told = run("run")
    assert told.exit_code == 2
    assert "not valid: round 1, nginx: plain: of 10 requests failed: 3 read" in told.stdout
    assert "not valid: plain: of 10 requests failed: 3 read" in told.stderr


def test_left_out_everything_is_measured_five_times(monkeypatch: pytest.MonkeyPatch) -> None:
    [asked] = (giving(monkeypatch), run("run"))[0]
    assert asked == Campaign(
        list(CONTENDERS), PHASES, 5, Plan(4, 512), frozenset({FIRST}), frozenset({SECOND})
    )


def test_options_reach_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = giving(monkeypatch)
    run(
        *("run", "--contender", NGINX, "--phase", "stream", "--rounds", "2", "--seconds", "3"),
        *("--flood-tokens", "9", "--gateway-processors", str(SECOND)),
    )
    [found] = asked
    assert (list(found.contenders), list(found.phases), found.rounds) == ([NGINX], ["stream"], 2)
    assert found.plan == Plan(3, 9)
    assert [found.gateway_processors, found.load_processors] == [frozenset({SECOND}), frozenset({FIRST})]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--phase", "quarter"], "add --phase plain"),
        (["--gateway-processors", "first"], "is not like 0,2-3"),
        (["--load-processors", "99999"], "we may not run on"),
        (
            ["--gateway-processors", str(FIRST), "--load-processors", str(FIRST)],
            "need processors of their own",
        ),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_starts(
    options: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = giving(monkeypatch)
    told = run("run", *options)
    assert (told.exit_code, asked) == (2, [])
    assert problem in told.stderr


def test_one_processor_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    giving(monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {FIRST})
    told = run("run")
    assert told.exit_code == 2
    assert "two processors are needed" in told.stderr


def test_a_machine_without_the_programs_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(contenders, "SYSTEM_FOLDERS", "")
    told = run("run", "--contender", REDIS)
    assert told.exit_code == 2
    assert "apt-get install wrk util-linux redis-server" in told.stderr


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = giving(monkeypatch)
    (tmp_path / "file").touch()
    told = run("run", "--json", str(tmp_path / "file" / "overhead.json"))
    assert (told.exit_code, asked) == (2, [])
    assert "cannot write" in told.stderr


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (CannotStart("the end"), 2)])
def test_what_there_is_of_a_campaign_that_ends_early_is_kept(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    giving(monkeypatch, *compared(90.0), error=error)
    file = tmp_path / "overhead.json"
    assert run("run", "--json", str(file)).exit_code == status
    assert len(json.loads(file.read_text())["results"]) == 3


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    giving(monkeypatch, *compared(90.0))
    file = tmp_path / "overhead.json"
    run("run", "--json", str(file))
    told = run("plot", str(file), "--out", str(file / "below"))
    assert told.exit_code == 2
    assert "cannot write to" in told.stderr


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
async def test_a_signal_ends_it_with_workers_gateway_and_callers(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    module = ("benchmarks.overhead", "run", "--contender", NGINX, "--phase", "plain", "--seconds", "1000")
    programs = 4  # the workers, nginx and its process that serves, wrk
    assert await ended_by(number, module, programs, tmp_path) == status

"""Does the command measure everything there is, judge it, keep it, and end what it started?"""

import json
import resource
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.footprint import __main__ as command
from benchmarks.footprint import measurements
from benchmarks.footprint.connecting import AT_ONCE
from benchmarks.footprint.measurements import Measurement, Plan
from benchmarks.footprint.rig import Rig, WorkerPlan
from benchmarks.footprint.streams import RequestFailed
from benchmarks.targets import Row
from tests.benchmarks.signalled import ended_by

SMALL = [
    "--connections",
    "5",
    "--streams",
    "3",
    "--waiting",
    "4",
    "--waiting-large",
    "2",
    "--steady-streams",
    "2",
    "--uploads",
    "2",
    "--body-bytes",
    "2000",
    "--requests",
    "8",
]


def plan(**numbers: int) -> Plan:
    """One of each, but for these."""
    ones = dict.fromkeys(
        ("connections", "streams", "waiting", "waiting_large", "steady_streams", "uploads", "requests"), 1
    )
    return Plan(**(ones | {"body_bytes": 1000} | numbers))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments, catch_exceptions=False)


def only(monkeypatch: pytest.MonkeyPatch, *rows: Row, error: Exception | None = None) -> list[Rig]:
    """Replace all measurements by one that gives these rows or fails. Returns where its rig will be."""
    rigs: list[Rig] = []

    async def answer(rig: Rig) -> list[Row]:
        rigs.append(rig)
        if error is not None:
            raise error
        return list(rows)

    made = Measurement("the question", [WorkerPlan("steady", 0.0)], 1, answer)
    monkeypatch.setattr(command, "measurements", lambda plan: [made])
    return rigs


def test_a_small_run_gives_every_row_with_unit_and_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "QUIET_TOKENS", 2)
    file = tmp_path / "results" / "footprint.json"

    result = run(*SMALL, "--json", str(file))

    assert result.exit_code in (0, 1), result.output  # figures of so small a run mean nothing
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["benchmark"] == "footprint"
    assert kept["parameters"] == {
        "connections": 5, "streams": 3, "waiting": 4, "waiting_large": 2,
        "steady_streams": 2, "uploads": 2, "body_bytes": 2000, "requests": 8,
    }  # fmt: skip
    assert [(row["name"], row["unit"], row["target"]) for row in kept["rows"]] == [
        ("idle process", "MB", "≤ 80 MB"),
        ("idle connection, 5 of them", "KB", "≤ 16 KB"),
        ("open stream, the first 3", "KB", "≤ 32 KB"),
        ("open stream, 3 again", "KB", "≤ 32 KB"),
        ("waiting request of 0.4 KB, 4 of them", "KB", "≤ 24 KB"),
        ("waiting request of 100 KB, 2 of them", "KB", "≤ 130 KB"),
        ("longest gap of 2 streams, alone", "ms", ""),
        ("longest gap of 2 streams, beside 2 bodies of 0.002 MB", "ms", "≤ 250 ms"),
        ("burst of 8: not answered, warm-up included", "requests", "≤ 0 requests"),
        ("burst of 8: in flight after it", "requests", "≤ 0 requests"),
        ("burst of 8: in the queue after it", "requests", "≤ 0 requests"),
        ("burst of 8: memory before it", "MB", ""),
        ("burst of 8: memory grown by it", "%", "≤ 10 %"),
    ]
    values = {row["name"]: row["value"] for row in kept["rows"]}
    assert values["idle process"] > 10
    assert values["longest gap of 2 streams, alone"] > 0
    assert values["longest gap of 2 streams, beside 2 bodies of 0.002 MB"] > 0
    assert [
        values[f"burst of 8: {name}"] for name in ("not answered, warm-up included", "in flight after it")
    ] == [0, 0]
    assert "idle process" in result.stdout
    assert result.stderr.splitlines() == [
        f"measuring: {question}"
        for question in (
            "idle process",
            "idle connections",
            "open streams",
            "waiting requests",
            "large waiting requests",
            "uploads",
            "burst",
        )
    ]


def test_half_of_a_burst_has_to_wait_so_that_the_queue_is_used() -> None:
    *_, burst = measurements.measurements(plan(requests=1000))

    assert burst.max_concurrency * len(burst.workers) == 500


def test_large_bodies_go_to_a_worker_that_streams_nothing() -> None:
    questions = {of.question: of for of in measurements.measurements(plan())}

    assert [worker.model for worker in questions["uploads"].workers] == ["steady", "images"]


@pytest.mark.parametrize(
    ("numbers", "files"),
    [
        ({"streams": 700}, 1400),  # the gateway has a caller and a worker for each
        ({"requests": 700}, 1400),
        ({"connections": 700}, 700 + AT_ONCE),
        ({"waiting": 700}, 700),
    ],
)
def test_as_many_files_may_be_open_as_the_gateway_needs(numbers: dict[str, int], files: int) -> None:
    assert plan(**numbers).open_files == files


def test_more_files_than_the_system_allows_are_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rigs = only(monkeypatch)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 4096))

    result = run()

    assert result.exit_code == 2
    assert "15320 open files are needed and 4096 allowed: lower --connections" in result.stderr
    assert "`ulimit -n 15320`" in result.stderr
    assert rigs == []


@pytest.mark.parametrize(("value", "status"), [(80.0, 0), (81.0, 1)])
def test_the_exit_status_tells_whether_every_target_is_met(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, Row("context", 1e9, "MB"), Row("judged", value, "MB", at_most=80))

    assert run().exit_code == status


def test_what_cannot_be_measured_is_named_with_the_end_of_the_gateways_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch, error=RequestFailed("a stream ended after 0 tokens"))

    result = run()

    assert result.exit_code == 2
    assert "the question: a stream ended after 0 tokens" in result.stderr
    assert "serving on" in result.stderr


def test_a_measurement_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rigs = only(monkeypatch)
    monkeypatch.setattr(command, "LIMIT_S", 0.0)

    result = run()

    assert result.exit_code == 2
    assert "took longer than 0 s" in result.stderr
    assert rigs == []


def test_a_measurement_begins_once_every_worker_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    up: list[float] = []

    async def answer(rig: Rig) -> list[Row]:
        up.append(await rig.total("gateway_worker_up"))
        return []

    workers = [WorkerPlan("steady", 0.0)] * 3
    monkeypatch.setattr(command, "measurements", lambda plan: [Measurement("up", workers, 1, answer)])

    assert run().exit_code == 0
    assert up == [3]


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rigs = only(monkeypatch)
    (tmp_path / "file").touch()

    result = run("--json", str(tmp_path / "file" / "footprint.json"))

    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert rigs == []


def test_a_machine_that_cannot_tie_programs_to_us_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch)
    monkeypatch.setenv("PATH", "")

    result = run()

    assert result.exit_code == 2
    assert "'setpriv'" in result.stderr


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
async def test_a_signal_ends_it_and_all_that_it_started(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    few = (f"--{name}=1" for name in ("connections", "streams", "waiting", "waiting-large"))
    module = ("benchmarks.footprint", *few, "--uploads=1000000", "--body-bytes=1000")
    programs = 3  # two workers and the gateway
    assert await ended_by(number, module, programs, tmp_path, "measuring: uploads") == status

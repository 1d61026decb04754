"""Is the engine as fast as the GPUs were? What the measurements say against what it does, within 20 %."""

import io

import pytest
from rich.console import Console

from benchmarks.simulator import report
from benchmarks.simulator.costs import Costs
from benchmarks.simulator.measured import Measurements
from benchmarks.simulator.report import Row, rows


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], Row]:
    """Every figure of every measured load."""
    return {(row.load, row.kind, row.figure): row for row in rows(Measurements.load(), Costs.load())}


def off(found: dict[tuple[str, str, str], Row], loads: list[str], kind: str, figure: str) -> dict[str, float]:
    """The rows of these loads that are not within 20 %."""
    chosen = [found[load, kind, figure] for load in loads]
    return {row.load: row.off for row in chosen if not row.is_near}


STREAMS = ["512/256, 1 stream", *(f"512/512, {streams} streams" for streams in (16, 40, 64, 128, 256))]
LONE = [f"lone prompt of {tokens}" for tokens in (1024, 4096, 16384, 30000)]
BURST = "32/512, burst of 100"
MIXED = [
    f"{policy}, {threshold}"
    for policy in ("round robin", "least requests")
    for threshold in ("no threshold", "threshold 1024")
]


def test_throughput_is_that_measured_at_every_concurrency(found: dict[tuple[str, str, str], Row]) -> None:
    assert off(found, [*STREAMS, *LONE, BURST], "", "out_tok_s") == {}


def test_a_token_takes_as_long_as_measured(found: dict[tuple[str, str, str], Row]) -> None:
    assert off(found, [*STREAMS, BURST], "", "tpot_p50_ms") == {}
    assert off(found, [*STREAMS, BURST], "", "tpot_p99_ms") == {}


def test_the_last_of_a_wave_waits_as_long_as_measured(found: dict[tuple[str, str, str], Row]) -> None:
    assert off(found, [*STREAMS[1:], BURST], "", "ttft_p99") == {}


def test_a_lone_prompt_takes_as_long_as_measured(found: dict[tuple[str, str, str], Row]) -> None:
    assert off(found, LONE, "", "ttft_p50") == {}
    assert off(found, LONE, "", "ttft_mean") == {}


def test_answers_end_when_they_did(found: dict[tuple[str, str, str], Row]) -> None:
    assert off(found, [*STREAMS, *LONE, BURST], "", "e2e_p50") == {}
    assert off(found, [*STREAMS, *LONE, BURST], "", "e2e_p99") == {}


@pytest.mark.parametrize("kind", ["short", "long"])
@pytest.mark.parametrize("figure", ["ttft_p99", "ttft_mean", "e2e_p50", "e2e_p99"])
def test_a_mixed_load_waits_as_long_as_measured_though_nothing_was_fitted_to_it(
    found: dict[tuple[str, str, str], Row], kind: str, figure: str
) -> None:
    assert off(found, MIXED, kind, figure) == {}


def test_the_measured_loads_are_all_there(found: dict[tuple[str, str, str], Row]) -> None:
    assert {load for load, _, _ in found} == {*STREAMS, *LONE, BURST, *MIXED}
    assert found["512/512, 256 streams", "", "out_tok_s"].measured == 10_059
    assert found["round robin, no threshold", "short", "ttft_p99"].measured == 1.6


def test_the_table_shows_every_row_and_how_far_off_it_is() -> None:
    shown = Console(file=io.StringIO(), width=160)
    near, far = (
        Row(
            "one",
            "short",
            "ttft_p99",
            1.0,
            1.2,
        ),
        Row("two", "", "out_tok_s", 100.0, 79.0),
    )

    shown.print(report.table([near, far]))

    assert isinstance(shown.file, io.StringIO)
    lines = [line.split("│")[1:-1] for line in shown.file.getvalue().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["one", "short", "time to first token p99, s", "1", "1.2", "+20%"],
        ["two", "", "output tokens/s", "100", "79", "-21%"],
    ]
    assert (near.is_near, far.is_near) == (True, False)
